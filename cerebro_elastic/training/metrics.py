"""Running means of an epoch, and checks that losses and parameters are finite. Nothing here imports torch."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np


class EpochMeans:
    """Running means of an epoch over the rows of all of its batches; they hop with the config.

    Args:
        state: The result of ``state`` at the end of the unit before, if that was in the same epoch.
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self._sums: dict[str, float] = dict(state["sums"]) if state else {}
        self._rows: int = state["rows"] if state else 0

    def add(self, metrics: Mapping[str, float], rows: int) -> None:
        """Add the means over a batch of ``rows`` rows."""
        self._rows += rows
        for name, value in metrics.items():
            self._sums[name] = self._sums.get(name, 0.0) + float(value) * rows

    def values(self, prefix: str = "") -> dict[str, float]:
        """The means by name, with ``prefix``."""
        return {f"{prefix}{name}": total / self._rows for name, total in self._sums.items()}

    def state(self) -> dict[str, Any]:
        """The values from which the next unit continues."""
        return {"sums": dict(self._sums), "rows": self._rows}


def not_finite(metrics: Mapping[str, float], arrays: Iterable[tuple[str, Any]] = ()) -> str | None:
    """Describe the first loss (a metric with "loss" in its name), or trained parameter of torch or array of
    another library, that is NaN or infinite.

    It reads each parameter once and waits for the device once, which is faster than a copy of them.

    Returns:
        The description; ``None`` if all are finite. Arrays of whole numbers are.
    """
    for name, value in metrics.items():
        if "loss" in name.lower() and not math.isfinite(value):
            return f"the metric {name} is {value}"
    values = dict(arrays)
    torch: Any = sys.modules.get("torch")
    tensors = {n: v for n, v in values.items() if torch is not None and isinstance(v, torch.Tensor)}
    if tensors and (bad := _bad_tensor(torch, tensors)):
        return bad
    for name, value in values.items():
        if name in tensors:
            continue
        array = np.asarray(value)
        if array.dtype.kind not in "biu" and not (finite := np.isfinite(array)).all():
            return _described(name, array.size - int(finite.sum()), array.size)
    return None


def _bad_tensor(torch: Any, tensors: Mapping[str, Any]) -> str | None:
    trained = {
        name: torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor.detach()
        for name, tensor in tensors.items()
        if tensor.requires_grad and not torch.nn.parameter.is_lazy(tensor) and tensor.numel()
    }
    # The extremes of a tensor are NaN or infinite if anything in it is; a sum could overflow.
    extremes = [extreme for tensor in trained.values() for extreme in torch.aminmax(tensor)]
    if not extremes or torch.stack(extremes).isfinite().all():
        return None
    name, tensor = next((n, t) for n, t in trained.items() if not t.isfinite().all())
    return _described(name, int((~tensor.isfinite()).sum()), tensor.numel())


def _described(name: str, bad: int, size: int) -> str:
    return f"the parameter {name} has {bad} of {size} values that are NaN or infinite"
