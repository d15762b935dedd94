"""Checkpoints of a hop: saved, verified and loaded on any fsspec URL, without pickle."""

from cerebro_elastic.checkpoint.bases import as_they_are, has_its_rows, keep_copies
from cerebro_elastic.checkpoint.manifest import Manifest, Still
from cerebro_elastic.checkpoint.storage import (
    Staged,
    Written,
    adopt,
    complete,
    is_divided,
    is_mapped,
    load,
    manifests,
    origin,
    prune,
    put_back,
    remove,
    restore,
    save,
    save_part,
    stage,
    stays_in,
    sweep,
    verify,
)
from cerebro_elastic.checkpoint.tensors import Part

__all__ = [
    "Manifest",
    "Part",
    "Staged",
    "Still",
    "Written",
    "adopt",
    "as_they_are",
    "complete",
    "has_its_rows",
    "is_divided",
    "is_mapped",
    "keep_copies",
    "load",
    "manifests",
    "origin",
    "prune",
    "put_back",
    "remove",
    "restore",
    "save",
    "save_part",
    "stage",
    "stays_in",
    "sweep",
    "verify",
]
