"""What loggers get: a visit's rows, in the order in which the config logged them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cerebro_elastic.core.model.configs import HParams


@dataclass(frozen=True, slots=True)
class Logged:
    """A visit's ``rows``: metrics by name, with ``step`` (the config's own, which goes on from node to node)
    and ``epoch``; logged between ``start`` and ``end``, seconds of wall-clock time."""

    config: str
    hparams: HParams
    rows: Sequence[Mapping[str, float]]
    start: float
    end: float


class Logger(Protocol):
    """Where rows go: a program in which people look at curves. It sees each config's visits in their
    order."""

    def write(self, logged: Logged) -> None:
        """Take in a visit's rows. Whatever it raises, the run goes on without it."""

    def close(self) -> None:
        """No more rows will come."""
