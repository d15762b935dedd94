"""Checkpoints of a hop: saved, verified and loaded on any fsspec URL, without pickle."""

from cerebro_elastic.checkpoint.storage import (
    Staged,
    complete,
    is_divided,
    load,
    origin,
    origins,
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
    "Part",
    "Staged",
    "complete",
    "is_divided",
    "load",
    "origin",
    "origins",
    "put_back",
    "remove",
    "restore",
    "save",
    "save_part",
    "stage",
    "verify",
]
