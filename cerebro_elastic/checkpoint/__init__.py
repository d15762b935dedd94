"""Checkpoints of a hop: saved, verified and loaded on any fsspec URL, without pickle."""

from cerebro_elastic.checkpoint.manifest import Manifest
from cerebro_elastic.checkpoint.storage import (
    Staged,
    complete,
    is_divided,
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
    verify,
)
from cerebro_elastic.checkpoint.tensors import Part

__all__ = [
    "Manifest",
    "Part",
    "Staged",
    "complete",
    "is_divided",
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
    "verify",
]
