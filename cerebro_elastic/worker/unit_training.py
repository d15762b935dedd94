"""A unit on one of its ranks: load the state, train, stage the state to save. Evaluations are units, too."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cerebro_elastic.core.history.progress import position
from cerebro_elastic.core.model.attempts import Attempt, Visit
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.origin import origin_of
from cerebro_elastic.core.model.units import CheckpointRef, Phase, Unit
from cerebro_elastic.errors import CheckpointError
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.system.clock import Clock
from cerebro_elastic.system.files import locate, translated, write
from cerebro_elastic.training import job_batches
from cerebro_elastic.training.parallel import collectives
from cerebro_elastic.training.task import UnitJob, UnitResult
from cerebro_elastic.worker.checkpoint_collector import name_of
from cerebro_elastic.worker.failure import NotFinite
from cerebro_elastic.worker.group_rendezvous import RankAssignment
from cerebro_elastic.worker.rank_context import RankContext
from cerebro_elastic.worker.resources import ResourceMeter
from cerebro_elastic.worker.saving import part_of, save_part, staged


@dataclass(frozen=True)
class SavedUnit:
    """A unit whose state and log other nodes can read."""

    visit: Visit
    """The visit, without the time of its save."""
    trained_at: float
    """When its training ended, by the rank's clock."""
    at: float
    """When state and log could be read."""
    seconds: float
    """Seconds of staging and saving."""

    def committed(self, freed_at: float | None = None) -> Visit:
        """The visit to commit. Its node was free since ``freed_at``, or only once the unit was saved."""
        freed_at = self.at if freed_at is None else min(freed_at, self.at)
        return replace(
            self.visit,
            hop_seconds=self.visit.hop_seconds + (freed_at - self.trained_at),
            save_seconds=self.at - freed_at,
        )


@dataclass(frozen=True)
class TrainedUnit:
    """A unit that is trained and not saved yet, on the rank that leads."""

    visit: Visit
    """The visit that it becomes, without the fields that its save adds."""
    rows: Sequence[Mapping[str, Any]]
    log: str
    """The URL that they get."""
    trained_at: float
    """When its training ended, by the rank's clock."""
    stage_seconds: float
    """Seconds of staging its output."""
    staged_bytes: int
    """Bytes of the staged state."""
    write: Callable[[Visit], CheckpointRef]
    """Saves the staged state; its origin is the visit."""
    clock: Clock

    def save(self) -> SavedUnit:
        """Save log and state, in any thread: it does not depend on the rank's next work."""
        began = self.clock.now()  # perhaps after the save before it
        visit = self.visit
        if self.rows:
            visit = replace(visit, log=self.log, log_digest=self._save_log())
        visit = replace(visit, output=self.write(visit))
        at = self.clock.now()
        return SavedUnit(visit, self.trained_at, at, self.stage_seconds + at - began)

    def _save_log(self) -> str:
        """The digest of the file of rows; it counts only if the unit's visit does."""
        with translated(CheckpointError, f"cannot write the log {self.log}"):
            return write(locate(self.log), [_line(row) for row in self.rows]).sha256


def train_attempt(
    context: RankContext,
    attempt: Attempt,
    config: Config,
    rank_assignment: RankAssignment,
    hang_seconds: float,
) -> TrainedUnit | None:
    """Load, train and stage the attempt's unit on this rank, which counts as hanging after ``hang_seconds``.

    Returns:
        The trained unit on the rank that leads, ``None`` on the others.
    """
    unit, clock, runner = attempt.unit, context.clock, context.unit_runner
    fetcher, rendezvous, beat = context.state_fetcher, context.rendezvous, context.watchdog.beat
    started, began = clock.wall(), clock.now()
    part = part_of(attempt.strategy, rank_assignment.rank)
    wait = rendezvous.waiting(attempt, rank_assignment, beat)
    state = fetcher.load(attempt.input, part, wait)
    fetcher.begin(unit.partition)
    fetch_seconds = _fetch_partition(context, unit)
    meter = ResourceMeter(runner.device, clock)
    runner.count_rows(beat)
    job = runner.job(config, unit, state, strategy=attempt.strategy, beat=meter.watching(beat))
    fetcher.prefetch(attempt.prefetch, part)
    name = name_of(unit.epoch, position(config), attempt.token)
    storage, place = context.spec.storage, f"{unit.config}/{name}"
    url, trains = f"{storage}/checkpoints/{place}", unit.phase is not Phase.EVALUATE
    with rendezvous.group(attempt, rank_assignment, hang_seconds):
        loaded_at = clock.now()
        load_seconds = loaded_at - began - fetch_seconds
        meter.begin()
        result = runner.perform(_stoppable(context, job, load_seconds))
        resources, trained_at = meter.end(), clock.now()
        parts = save_part(result.state, url, part, result.before) if trains else None
    if not rank_assignment.leads:
        return None
    _check_finite(result, runner.recipe)
    # An evaluation changes nothing: its output is its input.
    unchanged = None if trains else attempt.input
    save, staged_bytes = staged(result, url, parts) if unchanged is None else (lambda _origin: unchanged, 0)
    stage_seconds = clock.now() - trained_at
    visit = Visit(
        unit=unit,
        index_in_epoch=position(config),
        node=attempt.node,
        attempt=attempt.token,
        input=attempt.input,
        output=CheckpointRef(url, "", 0),
        samples=result.samples,
        batches=result.batches,
        seconds=trained_at - loaded_at,
        hop_seconds=load_seconds,
        started=started,
        metrics=result.metrics,
        strategy=attempt.strategy,
        done=result.done,
        skip=job.skip,
        whole=result.whole,
        gang=attempt.nodes[1:],
        hardware=attempt.hardware,
        replicas=fetcher.copied(attempt.prefetch),
        cached=runner.all_cached(),
        fetch_seconds=fetch_seconds,
        batches_made=job.data_use.made,
        batches_shared=job.data_use.taken,
        data_seconds=job.data_use.waited_seconds,
        differing=job.data_use.differing,
        resources=resources,
    )
    return TrainedUnit(
        visit,
        rows=result.log,
        log=f"{storage}/logs/{place}.jsonl",
        trained_at=trained_at,
        stage_seconds=stage_seconds,
        staged_bytes=staged_bytes,
        write=lambda visit: save(origin_of(context.basis, config.hparams, visit, attempt.record)),
        clock=clock,
    )


def _fetch_partition(context: RankContext, unit: Unit) -> float:
    """Seconds that the unit waits for its partition, which may be in transfer already."""
    runner, clock = context.unit_runner, context.clock
    began = clock.now()
    if runner.holds(unit.phase, unit.partition):
        return 0.0
    runner.fetch(unit.phase, unit.partition, context.watchdog.beat)
    return clock.now() - began


def _stoppable(context: RankContext, job: UnitJob, load_seconds: float) -> UnitJob:
    """The job, which from now on stops when one of its ranks must leave and the rest does not fit into the
    grace: all ranks at the same batch."""
    validation = job.validation if job.validates else ()
    total = job_batches.unit_batches(job) + job_batches.validation_batches(job, validation)
    writer = context.writer

    def save_seconds() -> float:
        # Before the first save, a load is the best estimate of one.
        return (writer.last_save_seconds or load_seconds) * (2 if writer.busy else 1)

    stop = context.leaving.stop(total, job.skip, save_seconds)
    return replace(job, stop=lambda done: collectives.any_of(stop(done)))


def _check_finite(result: UnitResult, recipe: Recipe) -> None:
    if result.not_finite is not None and recipe.limits.not_finite == "fail":
        raise NotFinite(
            f"{result.not_finite}: change the hyper-parameters that lead there, or let such configs go "
            "on with `limits: {not_finite: go-on}`"
        )


def _line(row: Any) -> bytes:
    return json.dumps(row).encode() + b"\n"
