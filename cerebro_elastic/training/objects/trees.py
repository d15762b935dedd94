"""Copies and sizes of trees of objects."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from torch import Tensor


def cloned(tree: Any) -> Any:
    """A copy of the tree with its own tensors and containers."""
    if isinstance(tree, Tensor):
        return tree.clone()
    if isinstance(tree, dict):
        return {key: cloned(item) for key, item in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)(cloned(item) for item in tree)
    return copy.copy(tree)


def size_in_bytes(tree: Any) -> int:
    """Bytes of the tensors and arrays in a tree."""
    if isinstance(tree, Tensor):
        return tree.numel() * tree.element_size()
    if isinstance(tree, np.ndarray):
        return tree.nbytes
    if isinstance(tree, dict):
        return sum(map(size_in_bytes, tree.values()))
    if isinstance(tree, list | tuple):
        return sum(map(size_in_bytes, tree))
    return 0
