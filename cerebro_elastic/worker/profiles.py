"""A trial on one of its ranks: how a choice does for a config, from a few batches.

Saturn's Trial Runner (cerebro-platform-thesis-2023, section 3.2.4): nothing is saved, and the config does not
advance. What is refused before the first batch, and what has not memory enough, is a result, too.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

import torch

from cerebro_elastic.clock import Clock
from cerebro_elastic.core.model.attempts import Attempt, FailureKind, ProfileResult
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.errors import MissingExtra, RecipeError, TaskError
from cerebro_elastic.parallel import collectives
from cerebro_elastic.training import feed
from cerebro_elastic.training.task import Stopped, TaskState, UnitJob
from cerebro_elastic.training.unit_runner import UnitRunner
from cerebro_elastic.worker import memory
from cerebro_elastic.worker.failure import failure_of
from cerebro_elastic.worker.group_rendezvous import GroupRendezvous
from cerebro_elastic.worker.rank_assignment import RankAssignment
from cerebro_elastic.worker.state_fetcher import StateFetcher

_BATCHES = 6
"""How many are trained at least; the first is not timed, for it pays for what is done once."""


class Profiles:
    """Does the trials of one rank, on which a unit may take ``limit`` bytes (``None``: what there is)."""

    def __init__(
        self,
        bench: UnitRunner,
        hopper: StateFetcher,
        gathering: GroupRendezvous,
        clock: Clock,
        beat: Callable[[], None],
        limit: int | None,
    ) -> None:
        self._bench = bench
        self._hopper = hopper
        self._gathering = gathering
        self._clock = clock
        self._beat = beat
        self._limit = limit

    def do(self, attempt: Attempt, config: Config, seat: RankAssignment, hang: float) -> ProfileResult | None:
        """What the attempt's trial tells, on the rank that leads, and on whichever finds that it cannot be;
        ``None`` on the others."""
        try:
            return self._tried(attempt, config, seat, hang)
        except (Exception, SystemExit) as error:  # whatever the user's code raises
            why = refusal_of(attempt, error)
            if why is None:
                raise
            return _result(attempt, refusal=why)

    def _tried(
        self, attempt: Attempt, config: Config, seat: RankAssignment, hang: float
    ) -> ProfileResult | None:
        wait = self._gathering.waiting(attempt, seat, self._beat)
        state = self._hopper.load(attempt.input, wait=wait)
        meter = memory.Meter(torch.device(self._bench.device))
        job = self._bench.job(config, attempt.unit, state, strategy=attempt.strategy, beat=self._beat)
        with self._gathering.group(attempt, seat, hang):
            tried = try_out(self._bench, job, self._clock, meter, self._limit)
        if not seat.leads:
            return None
        if why := too_much(tried.bytes, self._limit):
            return _result(attempt, refusal=why)
        return _result(attempt, seconds=tried.per_batch * feed.unit_batches(job), bytes=tried.bytes)


@dataclass(frozen=True)
class Tried:
    """What a few batches of a unit have told: seconds ``per_batch``, the highest number of ``bytes`` that one
    of the ranks had in use (known on the one that leads), and the ``state`` after them (``None`` of a task
    that does not split)."""

    per_batch: float
    bytes: int
    state: TaskState | None


def try_out(
    bench: UnitRunner,
    job: UnitJob,
    clock: Clock,
    meter: memory.Meter,
    limit: int | None,
    seconds: float = 0.0,
) -> Tried:
    """Train a few batches of the job on this rank, in the group that its choice needs, and more if that takes
    less than ``seconds``. A unit may take ``limit`` bytes (``None``: what there is)."""
    room = memory.room(torch.device(bench.device), limit)
    watch = _Watch(clock, torch.device(bench.device), meter, seconds)
    watch.begin(job.skip, feed.unit_batches(job))
    state = None
    with suppress(Stopped):  # of a task that does not split: it has seen as many batches
        # What one rank refuses all do: none is left waiting for it.
        state = bench.perform(replace(job, stop=watch.stop, room=collectives.least(room))).state
    watch.end(feed.unit_batches(job))
    return Tried(watch.per_batch, max(collectives.gathered(watch.highest), default=0), state)


def too_much(taken: int, limit: int | None) -> str | None:
    """Why a choice is refused under which a rank had so many bytes in use, if it is."""
    if limit is None or taken <= limit:
        return None
    return f"it took {taken / 1e6:.3g} MB on a rank, which may take {limit / 1e6:.3g} MB ({memory.LIMIT})"


@dataclass
class _Watch:
    """Times the batches of a trial, and looks at its memory when all is done: the state is exported then."""

    clock: Clock
    device: torch.device
    meter: memory.Meter
    seconds: float
    skip: int = 0
    batches: int = 0
    enough: int = 0
    highest: int = 0
    times: dict[int, float] = field(default_factory=dict)

    def begin(self, skip: int, batches: int) -> None:
        self.skip, self.batches, self.enough = skip, batches, skip + _BATCHES
        self.times[skip] = self._now()

    def stop(self, done: int) -> bool:
        """Asked at each batch boundary (``UnitJob.stop``): whether these were enough."""
        self.times[done] = self._now()
        if done == self.skip + _BATCHES and self.seconds:
            # All ranks train as many, and none the last, behind which more may come than a batch.
            wanted = collectives.least(int(self.seconds / max(self.per_batch, 1e-6)))
            self.enough = max(done, min(self.skip + wanted, self.batches - 1))
        return done >= self.enough

    def end(self, batches: int) -> None:
        """The job has come back: perhaps it had fewer batches."""
        if len(self.times) <= _BATCHES:
            self.times[batches] = self._now()
        self.highest = self.meter.highest()

    @property
    def per_batch(self) -> float:
        """Seconds, without the first batch if there are several."""
        times = list(self.times.items())
        (first, began), (last, ended) = times[1 if len(times) > 2 else 0], times[-1]
        return (ended - began) / (last - first)

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return self.clock.now()


def refusal_of(attempt: Attempt, error: BaseException) -> str | None:
    """Why the attempt's choice is not feasible, if ``error`` says that; ``None`` if it says anything else."""
    failure = failure_of(attempt, attempt.node, error)
    if failure.kind is FailureKind.OUT_OF_MEMORY:
        return f"out of memory: {failure.story}"
    return failure.story if isinstance(error, TaskError | RecipeError | MissingExtra) else None


def _result(
    attempt: Attempt, *, seconds: float = 0.0, bytes: int = 0, refusal: str | None = None
) -> ProfileResult:
    return ProfileResult(
        attempt.unit,
        attempt.strategy,
        attempt.hardware,
        attempt.node,
        attempt.token,
        seconds=seconds,
        bytes=bytes,
        refusal=refusal,
    )
