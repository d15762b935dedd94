"""A profile on one of its ranks: the cost of a strategy for a config, from a few batches.

As Saturn's Trial Runner does (cerebro-platform-thesis-2023, section 3.2.4): nothing is saved, and the config
does not advance. A refusal before the first batch, and too little memory, are results, too.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace

from cerebro_elastic.core.model.attempts import Attempt, FailureKind, ProfileResult
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.data.reading.made_once import DataUse
from cerebro_elastic.errors import MissingExtra, RecipeError, TaskError
from cerebro_elastic.system.clock import Clock
from cerebro_elastic.system.devices import synchronize
from cerebro_elastic.training import job_batches
from cerebro_elastic.training.parallel import collectives
from cerebro_elastic.training.task import Stopped, UnitJob, UnitResult
from cerebro_elastic.training.unit_runner import UnitRunner
from cerebro_elastic.worker import resources
from cerebro_elastic.worker.failure import failure_of
from cerebro_elastic.worker.group_rendezvous import RankAssignment
from cerebro_elastic.worker.rank_context import RankContext

_BATCHES = 6
"""The least number of trained batches. The first is not timed, because it includes work that is done once."""


@dataclass(frozen=True)
class Profiled:
    """The measurements of a few batches of a unit."""

    batch_seconds: float
    data_seconds: float
    """The part of them spent waiting for the batch."""
    peak_bytes: int
    """The most bytes that one of the ranks had in use; known on the rank that leads."""
    result: UnitResult | None
    """The state after the batches; ``None`` for a task that does not split."""


def profile_attempt(
    context: RankContext,
    attempt: Attempt,
    config: Config,
    rank_assignment: RankAssignment,
    hang_seconds: float,
) -> ProfileResult | None:
    """Profile the attempt's strategy on this rank, which counts as hanging after ``hang_seconds``.

    Returns:
        The result on the rank that leads, and on each that finds the strategy infeasible; ``None`` on the
        others.
    """
    runner, beat = context.unit_runner, context.watchdog.beat
    limit = context.memory_limit_bytes
    try:
        wait = context.rendezvous.waiting(attempt, rank_assignment, beat)
        state = context.state_fetcher.load(attempt.input, wait=wait)
        meter = resources.Meter(runner.device)
        runner.count_rows(beat)
        job = runner.job(config, attempt.unit, state, strategy=attempt.strategy, beat=beat)
        with context.rendezvous.group(attempt, rank_assignment, hang_seconds):
            profiled = profile(runner, job, context.clock, meter, limit)
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        reason = refusal_of(attempt, error)
        if reason is None:
            raise
        return ProfileResult.of(attempt, refusal=reason)
    if not rank_assignment.leads:
        return None
    if reason := over_limit(profiled.peak_bytes, limit):
        return ProfileResult.of(attempt, refusal=reason)
    seconds = profiled.batch_seconds * job_batches.unit_batches(job)
    return ProfileResult.of(attempt, seconds=seconds, bytes=profiled.peak_bytes)


def profile(
    runner: UnitRunner,
    job: UnitJob,
    clock: Clock,
    meter: resources.Meter,
    limit: int | None,
    seconds: float = 0.0,
) -> Profiled:
    """Train a few batches of the job on this rank, in the group that its strategy needs.

    Args:
        job: A job whose state may be given away.
        meter: Measures the memory, starting before the state was loaded.
        limit: How many bytes a unit may take; ``None``: all free memory.
        seconds: Train more batches if the few take less than this.
    """
    free = resources.free_bytes(runner.device, limit)
    watch = _Watch(clock, runner.device, meter, job.data_use, seconds)
    watch.begin(job.skip, job_batches.unit_batches(job))
    result = None
    with suppress(Stopped):  # of a task that does not split: it has seen as many batches
        # If one rank refuses all do, so that none waits for it.
        limited = replace(job, stop=watch.stop, memory_limit_bytes=collectives.least(free))
        result = runner.perform(limited)
    watch.end(job_batches.unit_batches(job))
    return Profiled(
        watch.batch_seconds,
        watch.data_seconds,
        max(collectives.gathered(watch.peak_bytes), default=0),
        result,
    )


def over_limit(peak_bytes: int, limit: int | None) -> str | None:
    """Why a strategy with ``peak_bytes`` in use on a rank is refused; ``None`` if it is not."""
    if limit is None or peak_bytes <= limit:
        return None
    took, may_take = f"{peak_bytes / 1e6:.3g} MB", f"{limit / 1e6:.3g} MB ({resources.LIMIT})"
    return f"it took {took} on a rank, whose limit is {may_take}"


@dataclass
class _Watch:
    """Times the batches of a profile, and measures its memory at the end: the state is exported only then."""

    clock: Clock
    device: str
    meter: resources.Meter
    data_use: DataUse
    seconds: float
    skip: int = 0
    batches: int = 0
    enough: int = 0
    peak_bytes: int = 0
    times: dict[int, tuple[float, float]] = field(default_factory=dict)
    """When how many batches of the partition were trained, by the clock, and for how long it had waited for
    data by then."""

    def begin(self, skip: int, batches: int) -> None:
        self.skip, self.batches, self.enough = skip, batches, skip + _BATCHES
        self.times[skip] = self._now()

    def stop(self, done: int) -> bool:
        """``UnitJob.stop``: whether ``done`` batches are enough."""
        self.times[done] = self._now()
        if done == self.skip + _BATCHES and self.seconds:
            # All ranks train the same number, and none trains the last: more than a batch may follow it.
            wanted = collectives.least(int(self.seconds / max(self.batch_seconds, 1e-6)))
            self.enough = max(done, min(self.skip + wanted, self.batches - 1))
        return done >= self.enough

    def end(self, batches: int) -> None:
        """The job has returned, perhaps after fewer batches."""
        if len(self.times) <= _BATCHES:
            self.times[batches] = self._now()
        self.peak_bytes = self.meter.peak_bytes()

    @property
    def batch_seconds(self) -> float:
        """Seconds of one batch, without the first if there are several."""
        return self._per_batch(0)

    @property
    def data_seconds(self) -> float:
        """How long training waited for one batch, alike."""
        return self._per_batch(1)

    def _per_batch(self, which: int) -> float:
        times = list(self.times.items())
        (first, began), (last, ended) = times[1 if len(times) > 2 else 0], times[-1]
        return (ended[which] - began[which]) / (last - first)

    def _now(self) -> tuple[float, float]:
        synchronize(self.device)
        return self.clock.now(), self.data_use.waited_seconds


def refusal_of(attempt: Attempt, error: BaseException) -> str | None:
    """Why the attempt's strategy is infeasible, if ``error`` shows that; else ``None``."""
    failure = failure_of(attempt, attempt.node, error)
    if failure.kind is FailureKind.OUT_OF_MEMORY:
        return f"out of memory: {failure.story}"
    return failure.story if isinstance(error, TaskError | RecipeError | MissingExtra) else None
