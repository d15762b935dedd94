"""A unit on one of its ranks: load, train, stage what is to be saved; everything but what is told of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from cerebro_elastic.clock import Clock
from cerebro_elastic.core.history.progress import position
from cerebro_elastic.core.model.attempts import Attempt, Visit
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.origin import basis_of, origin_of
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.core.model.units import CheckpointRef, Phase, Unit
from cerebro_elastic.errors import CheckpointError
from cerebro_elastic.files import locate, translated, write
from cerebro_elastic.parallel import collectives
from cerebro_elastic.training import feed
from cerebro_elastic.training.task import MetricRow, UnitJob, UnitResult
from cerebro_elastic.training.unit_runner import UnitRunner
from cerebro_elastic.worker.checkpoint_collector import name_of
from cerebro_elastic.worker.failure import NotFinite
from cerebro_elastic.worker.group_rendezvous import GroupRendezvous
from cerebro_elastic.worker.leaving import Leaving
from cerebro_elastic.worker.rank_assignment import RankAssignment
from cerebro_elastic.worker.saving import part_of, save_part, staged
from cerebro_elastic.worker.state_fetcher import StateFetcher


@dataclass(frozen=True)
class Saved:
    """Where a unit's state and log are, the log's digest, and when (by the rank's clock) they were there."""

    output: CheckpointRef
    log: str | None
    log_digest: str
    at: float


@dataclass(frozen=True)
class Trained:
    """A unit that is trained and not saved yet. ``save`` does that, wherever it is called, and needs nothing
    of what the rank does next. ``made`` is the visit but for that; ``bytes`` are those of the state, and the
    training ended at ``at`` (by the rank's clock)."""

    attempt: Attempt
    save: Callable[[], Saved]
    made: partial[Visit]
    load_seconds: float
    at: float
    bytes: int

    def visit(self, saved: Saved, freed: float | None = None) -> Visit:
        """What it makes, ``saved``; its node was free since ``freed``, or only then."""
        freed = saved.at if freed is None else min(freed, saved.at)
        return self.made(
            output=saved.output,
            log=saved.log,
            log_digest=saved.log_digest,
            hop_seconds=self.load_seconds + (freed - self.at),
            save_seconds=saved.at - freed,
        )


class Units:
    """Does the units of one rank, one after the other; ``beat`` is called at least once a batch. ``saving``
    says whether the state of the one before is still being saved."""

    def __init__(
        self,
        spec: Spec,
        bench: UnitRunner,
        hopper: StateFetcher,
        gathering: GroupRendezvous,
        clock: Clock,
        leaving: Leaving,
        beat: Callable[[], None],
        saving: Callable[[], bool],
    ) -> None:
        self._spec = spec
        self._basis = basis_of(spec)
        self._bench = bench
        self._hopper = hopper
        self._gathering = gathering
        self._clock = clock
        self._leaving = leaving
        self._beat = beat
        self._saving = saving
        self._save_seconds = 0.0

    def do(self, attempt: Attempt, config: Config, seat: RankAssignment, hang: float) -> Trained | None:
        """What the attempt has trained, on the rank that leads; ``None`` on the others. A rank counts as
        hanging after ``hang`` seconds."""
        unit, clock = attempt.unit, self._clock
        started, began = clock.wall(), clock.now()
        part = part_of(attempt.strategy, seat.rank)
        wait = self._gathering.waiting(attempt, seat, self._beat)
        state = self._hopper.load(attempt.input, part, wait)
        fetch_seconds = self._fetch(unit)
        job = self._bench.job(config, unit, state, strategy=attempt.strategy, beat=self._beat)
        self._hopper.prefetch(attempt.prefetch, part)
        place = position(config)
        name = f"{unit.config}/{name_of(unit.epoch, place, attempt.token)}"
        url, trains = f"{self._spec.storage}/checkpoints/{name}", unit.phase is not Phase.EVALUATE
        with self._gathering.group(attempt, seat, hang):
            loaded = clock.now()
            load_seconds = loaded - began - fetch_seconds
            result = self._bench.perform(self._stoppable(job, load_seconds))
            trained = clock.now()
            parts = save_part(result.state, url, part) if trains else None
        if not seat.leads:
            return None
        self._check_finite(result)
        # An evaluation changes nothing: its output is its input.
        known = None if trains else attempt.input
        write, held = staged(result.state, url, parts) if known is None else (lambda _origin: known, 0)
        rows, staged_in = result.log, clock.now() - trained

        def save() -> Saved:
            begun = clock.now()  # perhaps after the save before it
            log, log_digest = self._save_log(rows, name)
            visit = made(output=CheckpointRef(url, "", 0), log_digest=log_digest, hop_seconds=0.0)
            output = write(origin_of(self._basis, config.hparams, visit, attempt.record))
            at = clock.now()
            self._save_seconds = staged_in + at - begun
            return Saved(output, log, log_digest, at)

        made = partial(
            Visit,
            unit=unit,
            k=place,
            node=attempt.node,
            attempt=attempt.token,
            input=attempt.input,
            samples=result.samples,
            batches=result.batches,
            seconds=trained - loaded,
            started=started,
            metrics=result.metrics,
            strategy=attempt.strategy,
            done=result.done,
            skip=job.skip,
            whole=result.whole,
            gang=attempt.nodes[1:],
            hardware=attempt.hardware,
            replicas=self._hopper.copied(attempt.prefetch),
            fetch_seconds=fetch_seconds,
        )
        return Trained(attempt, save, made, load_seconds, trained, held)

    def _fetch(self, unit: Unit) -> float:
        """The seconds that the unit waits for its partition, which may be on its way already."""
        asked = self._clock.now()
        if self._bench.holds(unit.phase, unit.partition):
            return 0.0
        self._bench.fetch(unit.phase, unit.partition, self._beat)
        return self._clock.now() - asked

    def _stoppable(self, job: UnitJob, load_seconds: float) -> UnitJob:
        """The job, which from now on stops when one of its ranks is to leave and what is left does not fit:
        all ranks at the same batch."""
        size = feed.loader_settings(job).batch_size
        validation = job.validation if job.validates else ()
        total = feed.unit_batches(job) + sum(-(-part.rows // size) for part in validation)

        def save_seconds() -> float:
            # Before the first save, a load says best what one takes.
            return (self._save_seconds or load_seconds) * (2 if self._saving() else 1)

        stop = self._leaving.stop(total, job.skip, save_seconds)
        return replace(job, stop=lambda done: collectives.any_of(stop(done)))

    def _check_finite(self, result: UnitResult) -> None:
        if result.not_finite is not None and self._bench.recipe.limits.not_finite == "fail":
            raise NotFinite(
                f"{result.not_finite}: change the hyper-parameters that lead there, or let such configs go "
                "on with `limits: {not_finite: go-on}`"
            )

    def _save_log(self, rows: Sequence[MetricRow], name: str) -> tuple[str | None, str]:
        """Where the rows are that were logged in the unit, and their digest; they count only if its visit
        does."""
        if not rows:
            return None, ""
        url = f"{self._spec.storage}/logs/{name}.jsonl"
        with translated(CheckpointError, f"cannot write the log {url}"):
            return url, write(locate(url), [_line(row) for row in rows]).sha256


def _line(row: Any) -> bytes:
    return json.dumps(row).encode() + b"\n"
