"""Exact equality of states: trees of containers, tensors, arrays and plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def assert_same(one: Any, other: Any, path: str = "state") -> None:
    """Raise ``AssertionError`` naming the first place at which two trees differ in any bit or type."""
    assert type(one) is type(other), f"{path}: {type(one).__name__} and {type(other).__name__}"
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype, f"{path}: {one.dtype} and {other.dtype}"
        assert torch.equal(one, other), f"{path}: the tensors differ"
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype, f"{path}: {one.dtype} and {other.dtype}"
        assert np.array_equal(one, other), f"{path}: the arrays differ"
    elif isinstance(one, Mapping):
        assert list(one) == list(other), f"{path}: keys {list(one)} and {list(other)}"
        for key in one:
            assert_same(one[key], other[key], f"{path}.{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), f"{path}: {len(one)} and {len(other)} items"
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            assert_same(left, right, f"{path}[{index}]")
    else:
        assert one == other, f"{path}: {one!r} and {other!r}"
