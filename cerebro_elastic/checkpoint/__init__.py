"""Checkpoints of a hop: saved, verified and loaded on any fsspec URL, without pickle."""

from cerebro_elastic.checkpoint.storage import load, remove, restore, save, verify

__all__ = ["load", "remove", "restore", "save", "verify"]
