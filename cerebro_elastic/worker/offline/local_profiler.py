"""Profiles strategies on this machine, without a run, for a plan.

As in a run (``worker/profiler.py``), a few batches show the cost of a strategy for a config. Besides, the
resulting state is saved and loaded once, as a hop does, and removed. Tensors that training leaves unchanged
are in a base before, as at all hops of a run except the first.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Self

from cerebro_elastic.core.history.progress import next_units
from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.codec import decode, encode
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.core.model.units import Strategy, Unit
from cerebro_elastic.errors import DataError, GroupBroken, StorageError
from cerebro_elastic.hop import checkpoint
from cerebro_elastic.system import files
from cerebro_elastic.system.clock import SystemClock
from cerebro_elastic.system.devices import CPU, count_here, device_of, kind_here, use
from cerebro_elastic.training.parallel import collectives
from cerebro_elastic.training.parallel.collectives import ranks
from cerebro_elastic.training.parallel.group import sweep
from cerebro_elastic.training.parallel.rank_pool import RankFailed, Ranks
from cerebro_elastic.training.task import Stopped, UnitJob, UnitResult
from cerebro_elastic.training.unit_runner import StrategyCost, UnitRunner, unit_runner_of
from cerebro_elastic.worker import resources
from cerebro_elastic.worker.failure import failure_of
from cerebro_elastic.worker.group_rendezvous import needs_group
from cerebro_elastic.worker.profiler import over_limit, profile, refusal_of
from cerebro_elastic.worker.saving import QUICK_SECONDS, part_of, save, save_part

STEADY_SECONDS = 1.0
"""Seconds that a profile trains for, if the unit lasts so long: five batches of milliseconds say little."""


class LocalProfiler:
    """Profiles strategies for configs of ``spec``.

    Rank processes are started when they are needed, and end with the context.

    Args:
        spec: The planned run.
        cache: The folder through which partitions come.
        scratch: A URL below which the states are saved, and nothing else. It is removed at the end.
        concurrent_units: The number of units that share this machine's cores at the same time.
    """

    def __init__(self, spec: Spec, cache: Path, scratch: str, concurrent_units: int = 1) -> None:
        self._spec = spec
        self._concurrent_units = concurrent_units
        self._kind = kind_here() if spec.load_recipe().task.ARRAYS == "torch" else CPU
        self._setup = (encode(spec), str(cache), scratch, self._kind)
        self._scratch = scratch
        self._stack = ExitStack()
        self._rank_pool: Ranks | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        files.remove(files.locate(self._scratch))

    def __call__(self, config: Config, strategy: Strategy) -> StrategyCost:
        """Profile ``strategy`` with the config's next unit.

        An exception of the user's code becomes a refusal. Wrong data are raised.
        """
        if reason := _too_large(strategy):
            return StrategyCost(config.id, strategy, refusal=reason)
        request = (encode(config), encode(strategy))
        if not needs_group(strategy):
            return decode(profile_on_rank(*self._setup, *request), StrategyCost)
        members = range(strategy.ranks)
        try:
            cost, *_ = self._ranks().together(
                profile_on_rank, *self._setup, *request, members=members, kind=self._kind
            )
        except RankFailed as failed:
            return StrategyCost(
                config.id, strategy, refusal=f"its profile failed: {str(failed).splitlines()[-1]}"
            )
        return decode(cost, StrategyCost)

    def side_by_side(self, config: Config, strategy: Strategy) -> StrategyCost | None:
        """Profile a strategy of one rank in as many processes at once as share the cores.

        Returns:
            The means; ``None`` if nothing is shared, or if one of the processes fails.
        """
        if self._concurrent_units == 1 or needs_group(strategy) or self._kind != CPU:
            return None
        ranks, request = self._ranks(), (encode(config), encode(strategy))
        try:
            for member in range(self._concurrent_units):
                ranks.ask(member, profile_on_rank, *self._setup, *request)
            costs = [decode(ranks.answer(member), StrategyCost) for member in range(self._concurrent_units)]
        except RankFailed:  # the other answers would be taken for those to the next request
            self._stack.close()
            self._rank_pool = None
            return None
        if any(cost.refusal is not None for cost in costs):
            return None
        first = costs[0]
        return replace(
            first,
            batch_seconds=fmean(cost.batch_seconds for cost in costs),
            data_seconds=fmean(cost.data_seconds for cost in costs),
            fixed_seconds=fmean(cost.fixed_seconds for cost in costs),
            hop_seconds=None
            if first.hop_seconds is None
            else fmean(cost.hop_seconds or 0.0 for cost in costs),
            save_seconds=fmean(cost.save_seconds for cost in costs),
            concurrent_units=self._concurrent_units,
        )

    def _ranks(self) -> Ranks:
        if self._rank_pool is None:
            most = max(s.ranks for s in self._spec.plan.strategies if not _too_large(s))
            self._rank_pool = self._stack.enter_context(Ranks(max(most, self._concurrent_units)))
        return self._rank_pool


def _too_large(strategy: Strategy) -> str | None:
    """Why this machine has too few devices for the strategy; ``None`` if it has enough."""
    accelerators = count_here()
    devices, kind = (accelerators, "GPUs") if accelerators else (os.cpu_count() or 1, "cores")
    if strategy.ranks <= devices:
        return None
    return f"was not tried: it takes {strategy.ranks} ranks, and this machine has {devices} {kind}"


def profile_on_rank(spec: str, cache: str, scratch: str, kind: str, config: str, strategy: str) -> str:
    """Profile on one of the strategy's ranks. Arguments and result are encoded; rank 0 has the result."""
    device = device_of(kind, ranks()[0])
    use(device)
    runner = unit_runner_of(spec, cache, device)
    profiled, by = decode(config, Config), decode(strategy, Strategy)
    unit = next_units(profiled, decode(spec, Spec).plan)[0]
    try:
        return encode(_cost(runner, profiled, unit, by, scratch))
    except (DataError, StorageError, GroupBroken):
        raise
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        attempt = Attempt(unit, "here", 0, 0, strategy=by)
        failure = failure_of(attempt, "here", error, Path(files.here(decode(spec, Spec).root)))
        reason = refusal_of(attempt, error) or f"its profile failed: {failure.story}"
        return encode(StrategyCost(profiled.id, by, refusal=reason))
    finally:
        if not needs_group(by):
            sweep()


def _cost(runner: UnitRunner, config: Config, unit: Unit, strategy: Strategy, scratch: str) -> StrategyCost:
    clock, limit = SystemClock(), resources.limit_of(os.environ)
    meter = resources.Meter(runner.device)
    profiled = profile(runner, _job(runner, config, unit, strategy), clock, meter, limit, STEADY_SECONDS)
    if reason := over_limit(profiled.peak_bytes, limit):
        return StrategyCost(config.id, strategy, refusal=reason)
    # The first unit has paid for work that is done once.
    job = replace(_job(runner, config, unit, strategy), stop=lambda _done: True)
    began = clock.now()
    with suppress(Stopped):
        runner.perform(job)
    cost = StrategyCost(
        config.id,
        strategy,
        batch_seconds=profiled.batch_seconds,
        data_seconds=profiled.data_seconds,
        peak_bytes=profiled.peak_bytes,
        fixed_seconds=max(0.0, clock.now() - began - profiled.batch_seconds),
    )
    if profiled.result is None:
        return cost
    return _with_hop(cost, profiled.result, scratch)


def _with_hop(cost: StrategyCost, result: UnitResult, scratch: str) -> StrategyCost:
    """``cost`` with the seconds and bytes of a hop of the result's state, on rank 0; unchanged on the
    others."""
    clock, strategy, rank = SystemClock(), cost.strategy, ranks()[0]
    part, state, before = part_of(strategy, rank), result.state, result.before
    url = f"{scratch}/checkpoints/{cost.config}/{strategy.parallelism}-{strategy.ranks}"
    if not needs_group(strategy):  # other processes may do the same at the same time
        url += f"-{os.getpid()}"
    loaded = None
    if collectives.any_of(bool(before)):  # bases are written, fetched and mapped before any hop
        parts = save_part(state, f"{url}-first", part, before)
        if rank == 0:
            ref = save(state, f"{url}-first", parts, before)
            loaded = checkpoint.load(ref, part)
            before = checkpoint.stays_in(loaded)
            state = loaded if parts is None else state
            checkpoint.remove(ref)
    began = clock.now()
    parts = save_part(state, url, part, before)
    if rank > 0:
        return cost
    ref = save(state, url, parts, before)
    saved = clock.now()
    checkpoint.load(ref, part)
    ended = clock.now()
    checkpoint.remove(ref)
    # Ranks that each save their part, and those of several nodes, do nothing else before it is saved.
    waits = parts is not None or strategy.nodes > 1
    behind = 0.0 if waits else max(0.0, saved - began - QUICK_SECONDS)
    return replace(
        cost,
        hop_seconds=ended - began - behind,
        save_seconds=behind,
        state_bytes=ref.hopping_bytes,
    )


def _job(runner: UnitRunner, config: Config, unit: Unit, strategy: Strategy) -> UnitJob:
    """A separate job, as a job gives its state away."""
    state = checkpoint.load(config.head) if config.head else None
    return runner.job(config, unit, state, strategy=strategy)
