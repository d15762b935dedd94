"""Copies, comparisons and sizes of trees of objects."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
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


def trees_equal(one: Any, other: Any) -> bool:
    """Whether two trees are equal, bit by bit."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, Tensor):
        alike = one.shape == other.shape and one.dtype == other.dtype and one.device == other.device
        return bool(alike) and _bits_equal(one, other)
    if isinstance(one, np.ndarray):
        return (
            one.shape == other.shape and one.dtype == other.dtype and bool(one.tobytes() == other.tobytes())
        )
    if isinstance(one, dict):
        return list(one) == list(other) and all(trees_equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(trees_equal, one, other))
    return bool(one == other or (one != one and other != other))


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


def _bits_equal(one: Tensor, other: Tensor) -> bool:
    if one.layout is not torch.strided or other.layout is not torch.strided:
        return False
    return torch.equal(*(tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (one, other)))
