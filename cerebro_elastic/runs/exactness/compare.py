"""Compares units of a config with one ordinary fit, bit by bit, on a few batches.

Each unit, and the ordinary fit, is trained by a forked child of its own, which begins as this process is:
with the user's modules imported and nothing else done. So state that is kept in the process, and not in the
config, is as absent after a hop as it is on another node."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from operator import le
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from cerebro_elastic import checkpoint
from cerebro_elastic.core.model.units import CheckpointRef
from cerebro_elastic.explanations import explain_error
from cerebro_elastic.runs.exactness.differences import (
    Moment,
    differences,
    explain,
    explain_chance,
    is_chance,
    kind_of,
    names_text,
    steady,
)
from cerebro_elastic.runs.exactness.fork import ChildDied, call_in_fork
from cerebro_elastic.runs.exactness.outcome import IN_A_ROW, ORDINARY_FIT, CheckOutcome, Exactness
from cerebro_elastic.runs.exactness.units_in_a_row import UnitsInARow
from cerebro_elastic.training import job_batches
from cerebro_elastic.training.fingerprint import fingerprints
from cerebro_elastic.training.task import MetricRow, SupportsCheck, Task, UnitJob, UnitResult


class _CheckedTask(SupportsCheck, Protocol):
    """What trains both ways."""

    def train(self, job: UnitJob) -> UnitResult: ...

    @property
    def splits(self) -> bool: ...


@dataclass
class _Training:
    """The observations of one training."""

    moments: list[Moment] = field(default_factory=list)
    """What it consisted of, moment by moment."""
    logged: list[Moment] = field(default_factory=list)
    """Its logged rows, as moments."""
    metrics: list[Moment] = field(default_factory=list)
    """Its epochs' metrics, as moments."""
    error: str | None = None
    """The error with which it ended."""

    @property
    def all(self) -> list[Moment]:
        """All moments, logged rows and metrics."""
        return [*self.moments, *self.logged, *self.metrics]


def check_exactness(
    task: Task, jobs: Sequence[UnitJob], root: Path, folder: str, seconds: float
) -> Exactness:
    """Train ``jobs``, the units of a config, as units and as one ordinary fit, and compare. A task that has
    no ordinary fit trains the same units in one process instead, and their states are compared.

    The user's files are below ``root``; states are kept in ``folder`` meanwhile. It takes ``seconds`` at
    most."""
    began = time.monotonic()
    checked = task if isinstance(task, SupportsCheck) else UnitsInARow(task)
    reference = ORDINARY_FIT if checked is task else IN_A_ROW
    with TemporaryDirectory(dir=folder) as states:
        trainer = _Trainer(checked, jobs, root, states, began + seconds, reference)
        try:
            result = _compared(trainer)
        except ChildDied as died:
            result = Exactness(CheckOutcome.UNKNOWN, f"it could not be checked: {died}")
    return replace(result, seconds=time.monotonic() - began, reference=trainer.reference)


def _compared(trainer: _Trainer) -> Exactness:
    ordinary, units = trainer.ordinary(), trainer.units()
    if ordinary.error and units.error:
        return Exactness(CheckOutcome.FAILED, units.error)
    if ordinary.error:
        return Exactness(
            CheckOutcome.UNKNOWN, f"units can train it, and an ordinary fit cannot: {ordinary.error}"
        )
    if units.error:
        return Exactness(CheckOutcome.REFUSED, units.error)
    seen = Exactness(
        CheckOutcome.EQUAL,
        compared=_counts(units.all),
        logged=sorted({name.partition(" ")[2] for metrics in units.metrics for name in metrics.values}),
    )
    differing = differences(ordinary.all, units.all)
    if not differing:
        return seen
    chance = differences(ordinary.all, trainer.ordinary().all)
    chance += differences(units.all, trainer.units().all)
    varying = list(dict.fromkeys(difference.name for difference in chance))
    if is_chance(varying):
        return replace(seen, outcome=CheckOutcome.NOT_DETERMINISTIC, story=explain_chance(varying))
    if rest := steady(differing, varying):
        return replace(seen, outcome=CheckOutcome.DIFFERS, story=explain(rest, trainer.reference))
    text = f"two ordinary fits differ in this, too: {names_text(varying)} (a clock?)"
    return replace(seen, outcome=CheckOutcome.VARIES, story=text)


class _Trainer:
    """Trains ``jobs`` in forked children until the ``deadline``; states hop by checkpoints in ``folder``."""

    def __init__(
        self,
        task: _CheckedTask,
        jobs: Sequence[UnitJob],
        root: Path,
        folder: str,
        deadline: float,
        reference: str,
    ) -> None:
        self.reference = reference
        self._task = task
        self._jobs = jobs
        self._root = root
        self._folder = folder
        self._deadline = deadline
        self._saved = 0

    def ordinary(self) -> _Training:
        """One ordinary fit."""

        def fit() -> dict[str, Any]:
            witness = _Witness(0, self._jobs[0])
            jobs = [replace(job, beat=witness.beat) for job in self._jobs]
            fitted = self._task.ordinary_fit(jobs, witness)
            witness.note(fitted.log, fitted.metrics)
            return asdict(witness.training)

        return _training(self._in_child(fit))

    def units(self) -> _Training:
        """Unit by unit, each in a process of its own; one of them in two parts, if the task can be left."""
        all_units, head = _Training(), None
        split = self._split()
        for number, job in enumerate(self._jobs):
            skip, stops = 0, [1, None] if number == split else [None]
            for parts, stop in enumerate(stops):
                part = replace(job, skip=skip, stop=partial(le, stop) if stop else job.stop)
                answer = self._in_child(partial(self._part, number, part, parts, head))
                training = _training(answer)
                if training.error is not None:
                    return training
                all_units.moments += training.moments
                all_units.logged += training.logged
                skip, head = stop or 0, CheckpointRef(**answer["head"])
            all_units.metrics += training.metrics
            if answer["done"]:
                break
        return all_units

    def _split(self) -> int | None:
        """The index of a unit after the first with more than one batch."""
        numbers = (n for n, job in enumerate(self._jobs) if n and job_batches.unit_batches(job) > 1)
        return next(numbers, None) if self._task.splits else None

    def _part(self, number: int, job: UnitJob, parts: int, head: CheckpointRef | None) -> dict[str, Any]:
        witness = _Witness(number, job, parts)
        state = checkpoint.load(head) if head is not None else None
        with self._task.observed(witness):
            result = self._task.train(replace(job, state=state, beat=witness.beat))
        saved = checkpoint.save(result.state, f"{self._folder}/{self._saved}")
        witness.note(result.log, [result.metrics] if job.last and result.whole else [])
        return {**asdict(witness.training), "head": asdict(saved), "done": result.done}

    def _in_child(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        self._saved += 1
        return call_in_fork(partial(_caught, work, self._root), max(0.0, self._deadline - time.monotonic()))


class _Witness:
    """Records a training. The places of batches in an ordinary fit do not matter."""

    def __init__(self, number: int, job: UnitJob, parts: int = 0) -> None:
        self.training = _Training()
        self._job = job
        self._hops, self._parts = number, parts
        self._batches = job_batches.unit_batches(job)
        self._batch = job.skip

    def beat(self) -> None:
        """Record that the training takes the next batch."""
        self._batch += 1

    def __call__(self, when: str, values: Mapping[str, Any]) -> None:
        unit = self._job.unit
        place = f"unit {self._hops + 1} (epoch {unit.epoch}, partition {unit.partition})"
        if batch := min(self._batch, self._batches):
            place = f"batch {batch} of {place}"
        self.training.moments.append(self._moment(when, f"{when} {place}", fingerprints(values)))

    def note(self, rows: Iterable[MetricRow], metrics: Iterable[Mapping[str, float]]) -> None:
        """Record rows that the training logged."""
        epoch = self._job.unit.epoch
        for row in rows:
            place = f"in the row of step {row.get('step')} of epoch {row.get('epoch')}"
            self.training.logged.append(self._moment("logged", place, _texts("logged", row)))
        for means in metrics:
            place = f"at the end of epoch {epoch}"
            self.training.metrics.append(self._moment("metric", place, _texts("metric", means)))

    def _moment(self, when: str, place: str, values: Mapping[str, str]) -> Moment:
        return Moment(when, place, self._hops, self._parts, values)


def _texts(kind: str, row: Mapping[str, float]) -> dict[str, str]:
    return {f"{kind} {name}": repr(value) for name, value in row.items()}


def _caught(work: Callable[[], dict[str, Any]], root: Path) -> dict[str, Any]:
    """Catch any exception of users' code, in the child."""
    try:
        return work()
    except (Exception, SystemExit) as error:
        return {"error": explain_error(error, root)}


def _training(answer: Mapping[str, Any]) -> _Training:
    if answer["error"] is not None:
        return _Training(error=answer["error"])
    moments, logged, metrics = (
        [Moment(**moment) for moment in answer[kind]] for kind in ("moments", "logged", "metrics")
    )
    return _Training(moments, logged, metrics)


def _counts(moments: Iterable[Moment]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in (name for moment in moments for name in moment.values):
        counts[kind_of(name)] = counts.get(kind_of(name), 0) + 1
    return counts
