"""One attempt: load, train, save, commit; or say why not."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Self

from cerebro_elastic import checkpoint
from cerebro_elastic.clock import Clock
from cerebro_elastic.core.progress import position
from cerebro_elastic.core.values import Attempt, CheckpointRef, Config, Phase, Spec, Visit
from cerebro_elastic.errors import CheckpointError
from cerebro_elastic.files import locate, translated, write
from cerebro_elastic.logs import EventLog
from cerebro_elastic.store.ledger import Ledger
from cerebro_elastic.train import feed
from cerebro_elastic.train.bench import Bench
from cerebro_elastic.train.task import Stopped, UnitJob, UnitResult
from cerebro_elastic.worker.failure import NotFinite, failure_of
from cerebro_elastic.worker.hop import Hopper
from cerebro_elastic.worker.leaving import Leaving
from cerebro_elastic.worker.repair import Repairs
from cerebro_elastic.worker.sweep import Sweeper, name_of
from cerebro_elastic.worker.watchdog import Watchdog


class Attempts:
    """Performs the attempts of the node with this ``boot`` id, one after the other."""

    def __init__(
        self,
        ledger: Ledger,
        spec: Spec,
        bench: Bench,
        clock: Clock,
        log: EventLog,
        boot: str,
        leaving: Leaving,
        watchdog: Watchdog,
    ) -> None:
        self._ledger = ledger
        self._spec = spec
        self._bench = bench
        self._clock = clock
        self._log = log
        self._boot = boot
        self._leaving = leaving
        self._watchdog = watchdog
        repairs = Repairs(ledger, spec, bench, log, watchdog.beat)
        self._hopper = Hopper(lambda partition: bench.fetch(Phase.TRAIN, partition), repairs.repair)
        self._sweeper = Sweeper(ledger, spec.storage, spec.plan, bench.recipe, log)
        self._save_seconds = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._hopper.close()

    def perform(self, attempt: Attempt) -> None:
        """Do the attempt, unless it was fenced off before it began."""
        log = self._log.bind(
            config=attempt.unit.config,
            unit=[attempt.unit.epoch, attempt.unit.phase.value, attempt.unit.partition],
            attempt=attempt.token,
        )
        node, config = self._ledger.node(attempt.node), self._ledger.config(attempt.unit.config)
        if node is None or node.registration != attempt.registration:
            log.warning("stale: the node has registered anew")
        elif node.boot != self._boot:
            log.warning("not ours: another node has registered under our name; give each node its own")
        elif config is None or config.revision != attempt.config_revision:
            log.warning("stale: the config has moved on")
        else:
            self._perform(attempt, config, log)

    def _perform(self, attempt: Attempt, config: Config, log: EventLog) -> None:
        log.info("began")
        limits = self._bench.recipe.limits
        try:
            with self._watchdog.watching(
                max(limits.hang_seconds, limits.hang_factor * (attempt.expected or 0.0))
            ):
                visit = self._visit(attempt, config)
        except (Exception, SystemExit, Stopped) as error:  # whatever the user's code raises
            self._give_up(attempt, config, error, log)
            return
        told = {"seconds": visit.seconds, "hop_seconds": visit.hop_seconds, "metrics": visit.metrics}
        if not visit.whole:
            self._tell_leaving(attempt)
        if self._ledger.commit(attempt, config, visit, self._spec.plan):
            log.info("committed" if visit.whole else "committed in part", **told)
            self._sweeper.committed(visit)
        else:
            log.warning("refused: the assignment was withdrawn")
            self._sweeper.refused(visit)

    def _give_up(self, attempt: Attempt, config: Config, error: BaseException, log: EventLog) -> None:
        """When leaving, an exception says nothing: SIGTERM ends the processes that the unit uses, too."""
        if self._leaving.asked:
            log.warning("given up", why=f"{type(error).__name__}: {error}")
            self._tell_leaving(attempt)
            self._ledger.give_up(attempt)
        else:
            failure = failure_of(attempt, error)
            log.exception("failed", kind=failure.kind.value)
            self._ledger.fail(attempt, config, failure)

    def _tell_leaving(self, attempt: Attempt) -> None:
        """The history says that a node was asked to leave before it says what the node left undone; who else
        tells it may be slower than this unit."""
        self._ledger.drain(attempt.node, max(0.0, self._leaving.left), self._boot)

    def _visit(self, attempt: Attempt, config: Config) -> Visit:
        """Everything but the commit."""
        unit, clock = attempt.unit, self._clock
        started, began = clock.wall(), clock.now()
        state = self._hopper.load(attempt.input)
        job = self._bench.job(config, unit, state, choice=attempt.choice, beat=self._watchdog.beat)
        self._hopper.prefetch(attempt.prefetch)
        loaded = clock.now()
        result = self._bench.perform(self._stoppable(job, loaded - began))
        self._check_finite(result)
        trained = clock.now()
        place = position(config)
        name = f"{unit.config}/{name_of(unit.epoch, place, attempt.token)}"
        output = self._save(attempt, result, name)
        log = self._save_log(result, name)
        self._save_seconds = clock.now() - trained
        return Visit(
            unit=unit,
            k=place,
            node=attempt.node,
            attempt=attempt.token,
            input=attempt.input,
            output=output,
            samples=result.samples,
            batches=result.batches,
            seconds=trained - loaded,
            hop_seconds=(loaded - began) + self._save_seconds,
            started=started,
            metrics=result.metrics,
            choice=attempt.choice,
            log=log,
            done=result.done,
            skip=job.skip,
            whole=result.whole,
            gang=attempt.nodes[1:],
            hardware=attempt.hardware,
        )

    def _stoppable(self, job: UnitJob, load_seconds: float) -> UnitJob:
        """The job, which from now on stops when the rank is to leave and what is left does not fit."""
        size = feed.loader_settings(job).batch_size
        total = feed.unit_batches(job) + sum(-(-part.rows // size) for part in job.validation)
        # Before the first save, a load says best what one takes.
        save = self._save_seconds or load_seconds
        return replace(job, stop=self._leaving.stop(total, job.skip, save))

    def _check_finite(self, result: UnitResult) -> None:
        if result.not_finite is not None and self._bench.recipe.limits.not_finite == "fail":
            raise NotFinite(
                f"{result.not_finite}: change the hyper-parameters that lead there, or let such configs go "
                "on with `limits: {not_finite: go-on}`"
            )

    def _save(self, attempt: Attempt, result: UnitResult, name: str) -> CheckpointRef:
        """An evaluation changes nothing: its output is its input."""
        if attempt.unit.phase is Phase.EVALUATE and attempt.input is not None:
            return attempt.input
        return checkpoint.save(result.state, f"{self._spec.storage}/checkpoints/{name}")

    def _save_log(self, result: UnitResult, name: str) -> str | None:
        """The rows that were logged in the unit; they count only if its visit does."""
        if not result.log:
            return None
        url = f"{self._spec.storage}/logs/{name}.jsonl"
        with translated(CheckpointError, f"cannot write the log {url}"):
            write(locate(url), [_line(row) for row in result.log])
        return url


def _line(row: Any) -> bytes:
    return json.dumps(row).encode() + b"\n"
