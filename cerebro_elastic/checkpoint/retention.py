"""Which checkpoints of a config are kept. Pure: the caller deletes the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Literal, Self

from cerebro_elastic.core.history.progress import advance
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.units import CheckpointRef, Phase


def collectable(
    visits: Sequence[Visit], plan: Plan, metric: str, mode: Literal["min", "max"]
) -> tuple[CheckpointRef, ...]:
    """The checkpoints of one config's visit log, oldest first, without those to be kept."""
    kept = reduce(Shelf.put, visits, Shelf(plan, metric, mode)).kept
    chain = {visit.output.url: visit.output for visit in visits if visit.unit.phase is Phase.TRAIN}
    return tuple(ref for url, ref in chain.items() if url not in kept)


@dataclass(frozen=True, slots=True)
class Shelf:
    """What is kept of one config after the visits that were ``put``, in their order, from its first on: the
    last checkpoint, the one before it, and the best epoch's.

    The last one has been written, but nobody has read it yet. The visit that takes it as input loads it and
    checks it by digest, and only that visit's commit lets the one before it go: until then the last one
    can be made again from it, should it be found damaged (``worker/repair.py``).

    The best epoch has the least or, by ``mode``, greatest ``metric``, the earliest of equals; one
    without the metric, or with NaN, is never best. ``at`` is the config after these visits.
    """

    plan: Plan
    metric: str
    mode: Literal["min", "max"]
    at: Config = field(default_factory=lambda: Config("", {}))
    last: tuple[CheckpointRef, ...] = ()
    best: tuple[CheckpointRef, float] | None = None

    def put(self, visit: Visit) -> Self:
        """The shelf after one more visit."""
        after = advance(self.at, visit, self.plan)
        ends = after.epoch > self.at.epoch
        trained = visit.unit.phase is Phase.TRAIN
        return replace(
            self,
            at=after,
            last=(*self.last, visit.output)[-2:] if trained else self.last,
            best=self._better(after) if ends else self.best,
        )

    @property
    def kept(self) -> frozenset[str]:
        """The URLs of the checkpoints to keep."""
        best = [self.best[0]] if self.best else []
        return frozenset(ref.url for ref in (*self.last, *best))

    def _better(self, after: Config) -> tuple[CheckpointRef, float] | None:
        value = after.metrics.get(self.metric, math.nan)
        if after.head is None or math.isnan(value):
            return self.best
        sign = 1 if self.mode == "min" else -1
        worse = self.best is not None and sign * value >= sign * self.best[1]
        return self.best if worse else (after.head, value)
