"""Which value of a metric is best? The one rule of searches, results, pages and retention.

Values are compared as losses: a smaller one is better, whatever the ``mode``. Only a finite value can be
best: NaN, infinite and missing ones are the worst loss, ``math.inf``. Of equals the first is better: of
epochs the earliest, of configs the one that was created first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from cerebro_elastic.core.model.state import Point

if TYPE_CHECKING:
    from cerebro_elastic.recipes import Objective


def loss(value: float | None, mode: str) -> float:
    """``value`` of a metric whose ``mode`` is ``min`` or ``max``, as a loss."""
    if value is None or not math.isfinite(value):
        return math.inf
    return -value if mode == "max" else value


def ranking(losses: Iterable[float]) -> list[int]:
    """The places of the finite ``losses``, the best first."""
    finite = [(loss, place) for place, loss in enumerate(losses) if math.isfinite(loss)]
    return [place for _, place in sorted(finite)]


def best(losses: Iterable[float]) -> int | None:
    """The place of the best of the ``losses``; ``None`` if none is finite."""
    return next(iter(ranking(losses)), None)


def epoch_ends(curve: Iterable[Point]) -> list[Point]:
    """The points at which an epoch was complete, validation included."""
    return [point for point in curve if point.ends]


def best_end(ends: Sequence[Point], objective: Objective, *, of_member: bool = False) -> int | None:
    """The place of the best epoch's end by the objective; ``None`` if none has a finite value of it within
    its constraints. These are about the mean of a config's trainings: they do not bind one ``of_member``."""
    if of_member:
        return best(loss(end.metrics.get(objective.metric), objective.mode) for end in ends)
    return best(loss_of(end.metrics, objective) for end in ends)


def loss_of(metrics: Mapping[str, float], objective: Objective) -> float:
    """The loss of an epoch; one that breaks a constraint has the worst."""
    return loss(metrics.get(objective.metric), objective.mode) if objective.holds(metrics) else math.inf
