"""One attempt: load, train, save, commit; or say why not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Self

from cerebro_elastic import checkpoint
from cerebro_elastic.checkpoint.retention import collectable
from cerebro_elastic.clock import Clock
from cerebro_elastic.core.progress import position
from cerebro_elastic.core.values import Attempt, CheckpointRef, Config, Phase, Spec, Visit
from cerebro_elastic.errors import CheckpointError
from cerebro_elastic.files import locate, translated, write
from cerebro_elastic.logs import EventLog
from cerebro_elastic.store.ledger import Ledger
from cerebro_elastic.train.bench import Bench
from cerebro_elastic.train.task import UnitResult
from cerebro_elastic.worker.failure import failure_of
from cerebro_elastic.worker.hop import Hopper


class Attempts:
    """Performs the attempts of the node with this ``boot`` id, one after the other."""

    def __init__(
        self, ledger: Ledger, spec: Spec, bench: Bench, clock: Clock, log: EventLog, boot: str
    ) -> None:
        self._ledger = ledger
        self._spec = spec
        self._bench = bench
        self._clock = clock
        self._log = log
        self._boot = boot
        self._hopper = Hopper(lambda partition: bench.fetch(Phase.TRAIN, partition))

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
        try:
            visit = self._visit(attempt, config)
        except (Exception, SystemExit) as error:  # whatever the user's code raises
            failure = failure_of(attempt, error)
            log.exception("failed", kind=failure.kind.value)
            self._ledger.fail(attempt, config, failure)
            return
        if self._ledger.commit(attempt, config, visit, self._spec.plan):
            log.info("committed", seconds=visit.seconds, hop_seconds=visit.hop_seconds, metrics=visit.metrics)
            self._collect(config, log)
        else:
            log.warning("refused: the assignment was withdrawn")
            if visit.output != attempt.input:
                self._remove([visit.output], log)

    def _visit(self, attempt: Attempt, config: Config) -> Visit:
        """Everything but the commit."""
        unit, clock = attempt.unit, self._clock
        started, began = clock.wall(), clock.now()
        job = self._bench.job(config, unit, self._hopper.load(attempt.input))
        self._hopper.prefetch(attempt.prefetch)
        loaded = clock.now()
        result = self._bench.perform(job)
        trained = clock.now()
        name = f"{unit.config}/{unit.epoch:05d}-{position(config):05d}-{attempt.token}"
        output = self._save(attempt, result, name)
        log = self._save_log(result, name)
        return Visit(
            unit=unit,
            k=position(config),
            node=attempt.node,
            attempt=attempt.token,
            input=attempt.input,
            output=output,
            samples=result.samples,
            batches=result.batches,
            seconds=trained - loaded,
            hop_seconds=(loaded - began) + (clock.now() - trained),
            started=started,
            metrics=result.metrics,
            parallelism=attempt.parallelism,
            log=log,
            done=result.done,
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

    def _collect(self, config: Config, log: EventLog) -> None:
        """Delete what no config needs any more."""
        self._remove(self._newly_collectable(self._ledger.visits_of(config.id)), log)

    def _newly_collectable(self, visits: Sequence[Visit]) -> list[CheckpointRef]:
        """What the last visit made superfluous; what was so before is gone already."""
        objective, plan = self._bench.recipe.objective, self._spec.plan
        before = set(collectable(visits[:-1], plan, objective.metric, objective.mode))
        return [r for r in collectable(visits, plan, objective.metric, objective.mode) if r not in before]

    def _remove(self, refs: Sequence[CheckpointRef], log: EventLog) -> None:
        """Delete checkpoints; a failure to do so costs space, not the run."""
        try:
            for ref in refs:
                checkpoint.remove(ref)
        except CheckpointError as error:
            log.warning("cannot delete a checkpoint", why=str(error))


def _line(row: Any) -> bytes:
    return json.dumps(row).encode() + b"\n"
