"""Means of an epoch so far, over the rows of all of its batches, which hop with the config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class EpochMeans:
    """Sums of metrics, weighted by rows.

    Args:
        state: What ``state`` returned at the end of the unit before, if that was in the same epoch.
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
        """What the next unit continues from."""
        return {"sums": dict(self._sums), "rows": self._rows}
