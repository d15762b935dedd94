"""Which checkpoints of a config are kept. Pure: the caller deletes the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from math import inf
from typing import Literal, Self

from cerebro_elastic.core.history.progress import advance
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.best import loss
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.units import CheckpointRef, Phase


def collectable(
    visits: Sequence[Visit], plan: Plan, metric: str, mode: Literal["min", "max"]
) -> tuple[CheckpointRef, ...]:
    """The checkpoints of one config's visit log that can be deleted, oldest first."""
    kept = reduce(KeptCheckpoints.put, visits, KeptCheckpoints(plan, metric, mode)).kept
    chain = {visit.output.url: visit.output for visit in visits if visit.unit.phase is Phase.TRAIN}
    return tuple(ref for url, ref in chain.items() if url not in kept)


@dataclass(frozen=True, slots=True)
class KeptCheckpoints:
    """The checkpoints of one config that are kept: the last, the one before it, and the best epoch's.

    The last one has been written, but not yet read. The visit that takes it as input loads it and checks its
    digest, and only that visit's commit allows the one before it to be deleted: until then the last one can
    be made again from it, should it be damaged (``worker/repair.py``).
    """

    plan: Plan
    metric: str
    """The metric that says which epoch is best."""
    mode: Literal["min", "max"]
    """Whether the least or the greatest value is best."""
    at: Config = field(default_factory=lambda: Config("", {}))
    """The config after the visits that were ``put``, in their order, from its first on."""
    last: tuple[CheckpointRef, ...] = ()
    """The last checkpoint, and the one before it; oldest first."""
    best: tuple[CheckpointRef, float] | None = None
    """The best epoch's last checkpoint, and its loss."""

    def put(self, visit: Visit) -> Self:
        """The checkpoints to keep after one more visit."""
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
        value = loss(after.metrics.get(self.metric), self.mode)
        better = value < (self.best[1] if self.best else inf)
        return (after.head, value) if better and after.head is not None else self.best
