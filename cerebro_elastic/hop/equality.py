"""Compares values to the last bit. Nothing here imports torch."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

_EXACT = {bool, int, str, bytes}
"""Types that ``==`` compares to the last bit."""


def values_equal(one: Any, other: Any) -> bool:
    """Whether two values are of one type and the same to the last bit: containers item by item and in their
    order, arrays and tensors by their bytes. NaN equals NaN. Values that cannot be compared are not equal."""
    if one is other:
        return True
    kind = type(one)
    if kind is not type(other):
        return False
    if kind in _EXACT:
        return bool(one == other)
    if kind is float and one == other != 0:  # 0.0 is not -0.0
        return True
    if isinstance(one, float | complex):
        return repr(one) == repr(other)
    if isinstance(one, list | tuple | deque):
        return len(one) == len(other) and all(map(values_equal, one, other))
    if isinstance(one, Mapping):
        return list(one) == list(other) and all(values_equal(one[key], other[key]) for key in one)
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(one, torch.Tensor):
        return _tensors_equal(one, other, torch)
    if hasattr(one, "__array__"):
        return _arrays_equal(np.asarray(one), np.asarray(other))
    try:
        return bool(one == other)
    except (TypeError, ValueError):  # it compares item by item
        return False


def _arrays_equal(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.dtype.hasobject:
        return values_equal(one.tolist(), other.tolist())
    return one.tobytes() == other.tobytes()


def _tensors_equal(one: Any, other: Any, torch: Any) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype or one.device != other.device:
        return False
    if one.layout is not torch.strided or other.layout is not torch.strided:
        return False
    bits = (each.detach().resolve_conj().resolve_neg().contiguous().reshape(-1) for each in (one, other))
    return bool(torch.equal(*(each.view(torch.uint8) for each in bits)))
