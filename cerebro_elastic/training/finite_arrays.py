"""Checks that a config's losses and arrays are finite."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np


def not_finite_metric(metrics: Mapping[str, float]) -> str | None:
    """Describe the first loss (a metric with "loss" in its name) that is NaN or infinite; ``None`` if none
    is."""
    for name, value in metrics.items():
        if "loss" in name.lower() and not math.isfinite(value):
            return f"the metric {name} is {value}"
    return None


def not_finite_arrays(metrics: Mapping[str, float], arrays: Iterable[tuple[str, Any]] = ()) -> str | None:
    """Describe the first loss, or trained array of a library but torch, that is NaN or infinite.

    Returns:
        The description; ``None`` if all are finite. Arrays of whole numbers are.
    """
    if reason := not_finite_metric(metrics):
        return reason
    for name, value in arrays:
        array = np.asarray(value)
        if array.dtype.kind not in "biu" and not (finite := np.isfinite(array)).all():
            bad = array.size - int(finite.sum())
            return f"the parameter {name} has {bad} of {array.size} values that are NaN or infinite"
    return None
