"""Visits done again on this machine, by the choices by which they were done, without the run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from operator import le
from pathlib import Path
from typing import Any, Self

from cerebro_elastic import checkpoint
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.codec import decode, encode
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.core.model.units import CheckpointRef, Phase
from cerebro_elastic.errors import DamagedData
from cerebro_elastic.parallel.group import ranks
from cerebro_elastic.parallel.rank_pool import Ranks
from cerebro_elastic.training.task import UnitResult, never
from cerebro_elastic.training.unit_runner import UnitRunner
from cerebro_elastic.worker.group_rendezvous import needs_group
from cerebro_elastic.worker.saving import part_of, save, save_part


@dataclass(frozen=True, slots=True)
class Redone:
    """What came of a visit that was done again: the checkpoint, and all else that a task says of a unit
    (``train/task.UnitResult``)."""

    output: CheckpointRef
    samples: int
    batches: int
    metrics: Mapping[str, float]
    rows: tuple[Mapping[str, Any], ...] = field(default_factory=tuple)
    done: bool = False
    whole: bool = True
    not_finite: str | None = None


class VisitReplayer:
    """Does visits of the run of ``spec`` again; partitions come through the cache at ``cache``. Rank
    processes are started when they are needed, and end with the context."""

    def __init__(self, spec: Spec, cache: Path) -> None:
        self._spec = spec
        self._cache = cache
        self._bench = UnitRunner(spec, cache)
        self._bench.use_threads()
        self._stack = ExitStack()
        self._team: Ranks | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __call__(self, at: Config, visit: Visit, head: CheckpointRef | None, url: str) -> Redone:
        """What ``visit`` makes of the checkpoint at ``head``, the config being as ``at`` says: one under the
        fresh name ``url``; of an evaluation, ``head`` itself."""
        if not needs_group(visit.strategy):
            return _done(self._bench, at, visit, head, url)
        if self._team is None:
            most = max(strategy.ranks for strategy in self._spec.plan.strategies)
            self._team = self._stack.enter_context(Ranks(most))
        told = (encode(self._spec), str(self._cache), encode(at), encode(visit), head and encode(head), url)
        made, *_ = self._team.together(_on_a_rank, *told, members=range(visit.strategy.ranks))
        return decode(made, Redone)


_benches: dict[str, UnitRunner] = {}
"""Of this process, if it is a rank of the team."""


def _on_a_rank(spec: str, cache: str, at: str, visit: str, head: str | None, url: str) -> str:
    if spec not in _benches:
        _benches[spec] = UnitRunner(decode(spec, Spec), Path(cache))
        _benches[spec].use_threads()
    given = decode(head, CheckpointRef) if head else None
    made = _done(_benches[spec], decode(at, Config), decode(visit, Visit), given, url)
    return encode(made) if ranks()[0] == 0 else ""


def _done(bench: UnitRunner, at: Config, visit: Visit, head: CheckpointRef | None, url: str) -> Redone:
    """On one of the ranks of the visit's choice; of use on the one that leads."""
    rank, _ = ranks()
    part = part_of(visit.strategy, rank)
    stop = never if visit.whole else partial(le, visit.skip + visit.batches)

    def perform() -> UnitResult:
        state = checkpoint.load(head, part) if head else None
        return bench.perform(bench.job(at, visit.unit, state, strategy=visit.strategy, stop=stop))

    try:
        result = perform()
    except DamagedData:
        if needs_group(visit.strategy):  # the other ranks would not do it again
            raise
        result = perform()  # with data that are checked anew
    if visit.unit.phase is Phase.EVALUATE and head is not None:
        output = head
    else:
        parts = save_part(result.state, url, part)
        output = save(result.state, url, parts) if rank == 0 else visit.output
    return Redone(
        output=output,
        samples=result.samples,
        batches=result.batches,
        metrics=dict(result.metrics),
        rows=tuple(result.log),
        done=result.done,
        whole=result.whole,
        not_finite=result.not_finite,
    )
