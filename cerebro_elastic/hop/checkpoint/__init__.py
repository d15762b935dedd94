"""Checkpoints of a hop: saved, verified and loaded on any fsspec URL, without pickle."""

from cerebro_elastic.hop.checkpoint.bases import as_they_are as as_they_are
from cerebro_elastic.hop.checkpoint.bases import has_its_rows as has_its_rows
from cerebro_elastic.hop.checkpoint.bases import keep_copies as keep_copies
from cerebro_elastic.hop.checkpoint.manifest import Manifest as Manifest
from cerebro_elastic.hop.checkpoint.manifest import Still as Still
from cerebro_elastic.hop.checkpoint.storage import Staged as Staged
from cerebro_elastic.hop.checkpoint.storage import Written as Written
from cerebro_elastic.hop.checkpoint.storage import adopt as adopt
from cerebro_elastic.hop.checkpoint.storage import complete as complete
from cerebro_elastic.hop.checkpoint.storage import fetch_bases as fetch_bases
from cerebro_elastic.hop.checkpoint.storage import is_divided as is_divided
from cerebro_elastic.hop.checkpoint.storage import is_mapped as is_mapped
from cerebro_elastic.hop.checkpoint.storage import load as load
from cerebro_elastic.hop.checkpoint.storage import manifests as manifests
from cerebro_elastic.hop.checkpoint.storage import origin as origin
from cerebro_elastic.hop.checkpoint.storage import prune as prune
from cerebro_elastic.hop.checkpoint.storage import put_back as put_back
from cerebro_elastic.hop.checkpoint.storage import remove as remove
from cerebro_elastic.hop.checkpoint.storage import restore as restore
from cerebro_elastic.hop.checkpoint.storage import save as save
from cerebro_elastic.hop.checkpoint.storage import save_part as save_part
from cerebro_elastic.hop.checkpoint.storage import stage as stage
from cerebro_elastic.hop.checkpoint.storage import stays_in as stays_in
from cerebro_elastic.hop.checkpoint.storage import sweep as sweep
from cerebro_elastic.hop.checkpoint.storage import verify as verify
from cerebro_elastic.hop.checkpoint.tensors import Part as Part
