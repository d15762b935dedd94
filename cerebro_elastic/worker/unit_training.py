"""A unit on one of its ranks: load the state, train, stage what is to be saved. Evaluations are units,
too."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from cerebro_elastic.clock import Clock
from cerebro_elastic.core.history.progress import position
from cerebro_elastic.core.model.attempts import Attempt, Visit
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.origin import Origin, origin_of
from cerebro_elastic.core.model.run import Basis
from cerebro_elastic.core.model.units import CheckpointRef, Phase, Unit
from cerebro_elastic.data.made_batches import DataUse
from cerebro_elastic.errors import CheckpointError
from cerebro_elastic.files import locate, translated, write
from cerebro_elastic.parallel import collectives
from cerebro_elastic.training import job_batches
from cerebro_elastic.training.task import UnitJob, UnitResult
from cerebro_elastic.worker.checkpoint_collector import name_of
from cerebro_elastic.worker.failure import NotFinite
from cerebro_elastic.worker.rank_assignment import RankAssignment
from cerebro_elastic.worker.rank_context import RankTools
from cerebro_elastic.worker.saving import part_of, save_part, staged


@dataclass(frozen=True)
class UnitTimes:
    """When a unit was trained, and what it took."""

    started: float
    """When it began; wall-clock time, in seconds since the epoch."""
    fetch_seconds: float
    """Seconds that it waited for its partition."""
    load_seconds: float
    """Seconds of loading its input and forming its group."""
    train_seconds: float
    stage_seconds: float
    """Seconds of staging its output."""
    trained_at: float
    """When its training ended, by the rank's clock."""


@dataclass(frozen=True)
class SavedUnit:
    """Where a unit's state and log are, once others can read them."""

    output: CheckpointRef
    """The state."""
    log: str | None
    """The URL of the logged rows, if any."""
    log_digest: str
    """The log's sha256; empty without a log."""
    at: float
    """When they could be read, by the rank's clock."""
    seconds: float = 0.0
    """Seconds of staging and saving."""


@dataclass(frozen=True)
class TrainedUnit:
    """A unit that is trained and not saved yet, on the rank that leads."""

    attempt: Attempt
    config: Config
    """The config as it stood before."""
    basis: Basis
    """What the run is made from."""
    k: int
    """The unit's place in the epoch's order of visits, from 0."""
    skip: int
    """How many of the partition's batches were trained by the visits before."""
    result: UnitResult
    """What the task returned, without the state."""
    times: UnitTimes
    """When it was trained, and what it took."""
    replicas: tuple[int, ...]
    """The partitions that the node has fetched as replicas."""
    cached: tuple[int, ...] | None
    """All training partitions in the node's cache, if that is limited."""
    storage: str
    """The URL below which states and logs are saved."""
    write: Callable[[Origin], CheckpointRef]
    """Saves the staged state."""
    data_use: DataUse
    """The batches that were made and taken."""
    staged_bytes: int
    clock: Clock

    def save(self) -> SavedUnit:
        """Save log and state, in any thread: nothing of what the rank does next is needed."""
        began = self.clock.now()  # perhaps after the save before it
        log, log_digest = self._save_log()
        unsaved = SavedUnit(
            CheckpointRef(f"{self.storage}/checkpoints/{self._name}", "", 0), log, log_digest, began
        )
        output = self.write(
            origin_of(self.basis, self.config.hparams, self.visit(unsaved), self.attempt.record)
        )
        at = self.clock.now()
        return SavedUnit(output, log, log_digest, at, self.times.stage_seconds + at - began)

    def visit(self, saved: SavedUnit, freed_at: float | None = None) -> Visit:
        """The visit that the unit becomes. Its node was free since ``freed_at``, or only once it was
        saved."""
        freed_at = saved.at if freed_at is None else min(freed_at, saved.at)
        attempt, result, times = self.attempt, self.result, self.times
        return Visit(
            unit=attempt.unit,
            k=self.k,
            node=attempt.node,
            attempt=attempt.token,
            input=attempt.input,
            output=saved.output,
            samples=result.samples,
            batches=result.batches,
            seconds=times.train_seconds,
            hop_seconds=times.load_seconds + (freed_at - times.trained_at),
            started=times.started,
            metrics=result.metrics,
            strategy=attempt.strategy,
            log=saved.log,
            done=result.done,
            skip=self.skip,
            whole=result.whole,
            gang=attempt.nodes[1:],
            hardware=attempt.hardware,
            save_seconds=saved.at - freed_at,
            replicas=self.replicas,
            cached=self.cached,
            fetch_seconds=times.fetch_seconds,
            log_digest=saved.log_digest,
            batches_made=self.data_use.made,
            batches_shared=self.data_use.taken,
            data_seconds=self.data_use.waited_seconds,
        )

    @property
    def _name(self) -> str:
        return _name(self.attempt, self.k)

    def _save_log(self) -> tuple[str | None, str]:
        """The URL of the rows that the unit logged, and their digest; they count only if its visit does."""
        rows = self.result.log
        if not rows:
            return None, ""
        url = f"{self.storage}/logs/{self._name}.jsonl"
        with translated(CheckpointError, f"cannot write the log {url}"):
            return url, write(locate(url), [_line(row) for row in rows]).sha256


class UnitTraining:
    """One attempt at a unit on this rank."""

    def __init__(
        self, tools: RankTools, attempt: Attempt, config: Config, rank_assignment: RankAssignment
    ) -> None:
        self._tools = tools
        self._context = tools.context
        self._attempt = attempt
        self._config = config
        self._rank_assignment = rank_assignment

    def run(self, hang_seconds: float) -> TrainedUnit | None:
        """Load, train and stage. A rank counts as hanging after ``hang_seconds``.

        Returns:
            The trained unit on the rank that leads, ``None`` on the others.
        """
        attempt, unit, clock = self._attempt, self._attempt.unit, self._context.clock
        beat, fetcher, rendezvous = (
            self._context.watchdog.beat,
            self._tools.state_fetcher,
            self._tools.rendezvous,
        )
        started, began = clock.wall(), clock.now()
        part = part_of(attempt.strategy, self._rank_assignment.rank)
        wait = rendezvous.waiting(attempt, self._rank_assignment, beat)
        state = fetcher.load(attempt.input, part, wait)
        fetcher.begin(unit.partition)
        fetch_seconds = self._fetch_partition(unit)
        job = self._context.unit_runner.job(self._config, unit, state, strategy=attempt.strategy, beat=beat)
        fetcher.prefetch(attempt.prefetch, part)
        k, storage = position(self._config), self._context.spec.storage
        url, trains = f"{storage}/checkpoints/{_name(attempt, k)}", unit.phase is not Phase.EVALUATE
        with rendezvous.group(attempt, self._rank_assignment, hang_seconds):
            loaded_at = clock.now()
            load_seconds = loaded_at - began - fetch_seconds
            result = self._context.unit_runner.perform(self._stoppable(job, load_seconds))
            trained_at = clock.now()
            parts = save_part(result.state, url, part) if trains else None
        if not self._rank_assignment.leads:
            return None
        self._check_finite(result)
        # An evaluation changes nothing: its output is its input.
        unchanged = None if trains else attempt.input
        write, staged_bytes = (
            staged(result.state, url, parts) if unchanged is None else (lambda _origin: unchanged, 0)
        )
        return TrainedUnit(
            attempt,
            self._config,
            self._tools.basis,
            k=k,
            skip=job.skip,
            result=replace(result, state={}),
            times=UnitTimes(
                started,
                fetch_seconds,
                load_seconds,
                train_seconds=trained_at - loaded_at,
                stage_seconds=clock.now() - trained_at,
                trained_at=trained_at,
            ),
            replicas=fetcher.copied(attempt.prefetch),
            cached=self._context.unit_runner.all_cached(),
            storage=storage,
            write=write,
            data_use=job.data_use,
            staged_bytes=staged_bytes,
            clock=clock,
        )

    def _fetch_partition(self, unit: Unit) -> float:
        """Seconds that the unit waits for its partition, which may be on its way already."""
        runner, clock = self._context.unit_runner, self._context.clock
        began = clock.now()
        if runner.holds(unit.phase, unit.partition):
            return 0.0
        runner.fetch(unit.phase, unit.partition, self._context.watchdog.beat)
        return clock.now() - began

    def _stoppable(self, job: UnitJob, load_seconds: float) -> UnitJob:
        """The job, which from now on stops when one of its ranks is to leave and the rest does not fit into
        the grace: all ranks at the same batch."""
        validation = job.validation if job.validates else ()
        total = job_batches.unit_batches(job) + job_batches.validation_batches(job, validation)
        writer = self._tools.writer

        def save_seconds() -> float:
            # Before the first save, a load is the best estimate of one.
            return (writer.last_save_seconds or load_seconds) * (2 if writer.busy else 1)

        stop = self._context.leaving.stop(total, job.skip, save_seconds)
        return replace(job, stop=lambda done: collectives.any_of(stop(done)))

    def _check_finite(self, result: UnitResult) -> None:
        limits = self._context.unit_runner.recipe.limits
        if result.not_finite is not None and limits.not_finite == "fail":
            raise NotFinite(
                f"{result.not_finite}: change the hyper-parameters that lead there, or let such configs go "
                "on with `limits: {not_finite: go-on}`"
            )


def _name(attempt: Attempt, k: int) -> str:
    """The name of what the attempt saves, below the folders of checkpoints and logs."""
    return f"{attempt.unit.config}/{name_of(attempt.unit.epoch, k, attempt.token)}"


def _line(row: Any) -> bytes:
    return json.dumps(row).encode() + b"\n"
