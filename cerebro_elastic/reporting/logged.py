"""The interface of loggers, which get the rows that visits logged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cerebro_elastic.core.model.configs import HParams


@dataclass(frozen=True, slots=True)
class Logged:
    """The rows that one visit logged."""

    config: str
    """The config's id."""
    hparams: HParams
    """Its hyper-parameters by name."""
    rows: Sequence[Mapping[str, float]]
    """Metrics by name, in the order in which they were logged. ``step`` counts the config's steps over all
    nodes, and ``epoch`` its epochs."""
    start: float
    """When the visit began, in seconds of wall-clock time."""
    end: float
    """When it ended, in seconds of wall-clock time."""


class Logger(Protocol):
    """Writes rows for a program that shows curves. It gets the visits of each config in their order."""

    def write(self, logged: Logged) -> None:
        """Write a visit's rows. If it raises, the run goes on without this logger."""

    def close(self) -> None:
        """Finish: no more rows will come."""
