"""Replays visits on this machine by their own strategies, without the run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from operator import le
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.codec import decode, encode
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.core.model.units import CheckpointRef, Phase
from cerebro_elastic.errors import DamagedData
from cerebro_elastic.hop import checkpoint
from cerebro_elastic.system.devices import CPU, device_of, use
from cerebro_elastic.training.parallel.collectives import ranks
from cerebro_elastic.training.task import UnitResult, never
from cerebro_elastic.training.unit_runner import UnitRunner, unit_runner_of
from cerebro_elastic.worker.group_rendezvous import needs_group
from cerebro_elastic.worker.saving import part_of, save, save_part

if TYPE_CHECKING:
    from cerebro_elastic.training.parallel.rank_pool import Ranks


@dataclass(frozen=True, slots=True)
class ReplayResult:
    visit: Visit
    """The visit as it was made again; its times and places are those on record."""
    rows: tuple[Mapping[str, Any], ...]
    """The rows that were logged, in order."""
    not_finite: str | None = None
    """The loss or parameter that is NaN or infinite, if any."""


class VisitReplayer:
    """Replays visits of the run of ``spec``; partitions come through the cache at ``cache``. Visits that were
    trained on an accelerator are trained on devices of this ``kind``, others on the CPU. Rank processes are
    started when they are needed, and end with the context."""

    def __init__(self, spec: Spec, cache: Path, kind: str) -> None:
        self._spec = spec
        self._cache = cache
        self._kind = kind if spec.load_recipe().task.ARRAYS == "torch" else CPU
        self._unit_runners: dict[str, UnitRunner] = {}
        self._stack = ExitStack()
        self._rank_pool: Ranks | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __call__(self, at: Config, visit: Visit, head: CheckpointRef | None, url: str) -> ReplayResult:
        """Replay ``visit``.

        Args:
            at: The config as it stood before the visit.
            visit: The visit on record.
            head: The checkpoint to begin with.
            url: A fresh name for the checkpoint that is made. An evaluation makes none: its output is
                ``head``.
        """
        kind = CPU if visit.hardware == CPU else self._kind
        if not needs_group(visit.strategy):
            return _replay(self._unit_runner(device_of(kind, 0)), at, visit, head, url)
        if self._rank_pool is None:
            from cerebro_elastic.training.parallel.rank_pool import Ranks

            most = max(strategy.ranks for strategy in self._spec.plan.strategies)
            self._rank_pool = self._stack.enter_context(Ranks(most))
        request = (
            encode(self._spec),
            str(self._cache),
            encode(at),
            encode(visit),
            head and encode(head),
            url,
            kind,
        )
        result, *_ = self._rank_pool.together(
            _replay_on_rank, *request, members=range(visit.strategy.ranks), kind=kind
        )
        return decode(result, ReplayResult)

    def _unit_runner(self, device: str) -> UnitRunner:
        if device not in self._unit_runners:
            use(device)
            self._unit_runners[device] = UnitRunner(self._spec, self._cache, device)
            self._unit_runners[device].use_threads()
        return self._unit_runners[device]


def _replay_on_rank(spec: str, cache: str, at: str, visit: str, head: str | None, url: str, kind: str) -> str:
    begins_with = decode(head, CheckpointRef) if head else None
    runner = unit_runner_of(spec, cache, device_of(kind, ranks()[0]))
    result = _replay(runner, decode(at, Config), decode(visit, Visit), begins_with, url)
    return encode(result) if ranks()[0] == 0 else ""


def _replay(
    unit_runner: UnitRunner, at: Config, visit: Visit, head: CheckpointRef | None, url: str
) -> ReplayResult:
    """Replay on one of the visit's ranks. The result of rank 0 counts."""
    rank, _ = ranks()
    part = part_of(visit.strategy, rank)
    stop = never if visit.whole else partial(le, visit.skip + visit.batches)

    def perform() -> UnitResult:
        state = checkpoint.load(head, part) if head else None
        return unit_runner.perform(unit_runner.job(at, visit.unit, state, strategy=visit.strategy, stop=stop))

    try:
        result = perform()
    except DamagedData:
        if needs_group(visit.strategy):  # the other ranks would not do it again
            raise
        result = perform()  # with data that are checked again
    if visit.unit.phase is Phase.EVALUATE and head is not None:
        output = head
    else:
        parts = save_part(result.state, url, part)
        output = save(result.state, url, parts) if rank == 0 else visit.output
    again = replace(
        visit,
        input=head,
        output=output,
        samples=result.samples,
        batches=result.batches,
        metrics=dict(result.metrics),
        done=result.done,
        whole=result.whole,
    )
    return ReplayResult(again, tuple(result.log), result.not_finite)
