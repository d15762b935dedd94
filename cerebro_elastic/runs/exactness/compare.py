"""Compares units of a config with one ordinary fit, bit by bit, on a few batches.

Each unit, and the ordinary fit, is trained by a forked child of its own, which begins as this process is:
with the user's modules imported and nothing else done. So state that is kept in the process, and not in the
config, is as absent after a hop as it is on another node. Units make, keep and share batches as in a run; the
batches of the ordinary fit are those of a loader of the user's own (``own_batches.py``)."""

from __future__ import annotations

import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from operator import le
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, Self

from cerebro_elastic.core.model.units import CheckpointRef
from cerebro_elastic.data.reading.made_once import MadeBatches
from cerebro_elastic.hop import checkpoint
from cerebro_elastic.runs.exactness.differences import (
    BATCH,
    Moment,
    differences,
    explain,
    explain_chance,
    explain_scratch,
    is_chance,
    kind_of,
    names_of,
    steady,
    trains_nothing,
)
from cerebro_elastic.runs.exactness.outcome import IN_A_ROW, ORDINARY_FIT, CheckOutcome, Exactness
from cerebro_elastic.runs.exactness.own_batches import own_batches
from cerebro_elastic.system.devices import use
from cerebro_elastic.system.explanations import explain_error
from cerebro_elastic.system.subprocess_call import ChildDied, call_in_fork
from cerebro_elastic.training import job_batches
from cerebro_elastic.training.fingerprint import digest_of, fingerprints
from cerebro_elastic.training.task import (
    MetricRow,
    Observe,
    Observed,
    OrdinaryFit,
    SupportsCheck,
    Task,
    UnitJob,
    UnitResult,
    nothing,
)


class _CheckedTask(SupportsCheck, Protocol):
    """What trains both ways."""

    def train(self, job: UnitJob) -> UnitResult: ...

    @property
    def splits(self) -> bool: ...


@dataclass
class Training:
    moments: list[Moment] = field(default_factory=list)
    logged: list[Moment] = field(default_factory=list)
    """Its logged rows, as moments."""
    metrics: list[Moment] = field(default_factory=list)
    """Its epochs' metrics, as moments."""
    error: str | None = None

    @property
    def all(self) -> list[Moment]:
        """All moments, logged rows and metrics."""
        return [*self.moments, *self.logged, *self.metrics]

    @classmethod
    def of_json(cls, answer: Mapping[str, Any]) -> Self:
        """What a child has answered."""
        if answer["error"] is not None:
            return cls(error=answer["error"])
        moments, logged, metrics = (
            [Moment(**moment) for moment in answer[kind]] for kind in ("moments", "logged", "metrics")
        )
        return cls(moments, logged, metrics)


class ExactnessCheck:
    """The check of a config by ``jobs``, its units.

    They are trained as units and as one ordinary fit, and compared. A task that has no ordinary fit trains
    the same units in one process instead, and their states are compared.

    The user's files are below ``root``; states, and what units keep of their data, are in ``folder``
    meanwhile, at most ``room_bytes`` of the latter. It takes ``seconds`` at most, and calls ``say`` with each
    part of it."""

    def __init__(
        self,
        task: Task,
        jobs: Sequence[UnitJob],
        root: Path,
        folder: str,
        seconds: float,
        *,
        room_bytes: int = 1 << 30,
        say: Callable[[str], None] = nothing,
    ) -> None:
        self.task = task if isinstance(task, SupportsCheck) else UnitsInARow(task)
        self.reference = ORDINARY_FIT if self.task is task else IN_A_ROW
        self.jobs, self.root, self.folder = jobs, root, folder
        self.seconds, self.room_bytes, self.say = seconds, room_bytes, say
        self.alone = Training()
        """Its units, each in a process of its own, once the result is known."""
        self.varying: Sequence[str] = ()
        """The names of values that differ each time."""

    def result(self) -> Exactness:
        """Train, and compare."""
        began = time.monotonic()
        with TemporaryDirectory(dir=self.folder) as states:
            try:
                result = self._compared(Trainer(self, states, began + self.seconds))
            except ChildDied as died:
                result = Exactness(CheckOutcome.UNKNOWN, f"it could not be checked: {died}")
        return replace(result, seconds=time.monotonic() - began, reference=self.reference)

    def _compared(self, trainer: Trainer) -> Exactness:
        ordinary, units = trainer.ordinary(), trainer.units()
        self.alone = units
        if ordinary.error and units.error:
            return Exactness(CheckOutcome.FAILED, units.error)
        if ordinary.error:
            return Exactness(
                CheckOutcome.DIFFERS, f"units can train it, and an ordinary fit cannot: {ordinary.error}"
            )
        if units.error:
            return Exactness(CheckOutcome.REFUSED, units.error)
        seen = Exactness(
            CheckOutcome.EQUAL,
            compared=dict(Counter(kind_of(name) for moment in units.all for name in moment.values)),
            logged=sorted({name.partition(" ")[2] for metrics in units.metrics for name in metrics.values}),
        )
        differing = differences(ordinary.all, units.all)
        if not differing:
            return seen
        by_chance = names_of(differences(ordinary.all, trainer.ordinary().all))
        if is_chance(by_chance):
            story = explain_chance(by_chance)
            return replace(seen, outcome=CheckOutcome.NOT_DETERMINISTIC, story=story)
        noted = [
            name for name in names_of(differences(units.all, trainer.units().all)) if not is_chance([name])
        ]
        self.varying = list(dict.fromkeys([*by_chance, *noted]))
        rest = steady(differing, self.varying)
        if trains_nothing(rest):
            story = explain_scratch(names_of(rest), self.varying)
            return replace(seen, outcome=CheckOutcome.VARIES, story=story)
        story = explain(rest, self.reference)
        return replace(seen, outcome=CheckOutcome.DIFFERS, story=story)


class Trainer:
    """Trains the units of a ``check`` in forked children until the ``deadline``; states hop by checkpoints in
    ``folder``, where units keep and share what they make of their data, all in the same ``room``."""

    def __init__(self, check: ExactnessCheck, folder: str, deadline: float, room: str = "") -> None:
        self._check = check
        self._folder = folder
        self._deadline = deadline
        self._room = room

    def ordinary(self) -> Training:
        """One ordinary fit."""
        self._check.say(self._check.reference)

        def fit() -> dict[str, Any]:
            witness = _Witness(0, self._check.jobs[0])
            jobs = [
                replace(job, batches=own_batches, watch=witness.watch, beat=witness.beat)
                for job in self._check.jobs
            ]
            fitted = self._check.task.ordinary_fit(jobs, witness)
            witness.note(fitted.log, fitted.metrics)
            return asdict(witness.training)

        return Training.of_json(self._in_child(fit))

    def units(self) -> Training:
        """Unit by unit, each in a process of its own; one of them in two parts, if the task can be left."""
        steps = self.steps()
        while steps.left:
            self._check.say(f"unit {steps.left[0][0] + 1} of {len(self._check.jobs)}")
            steps.take(self._in_child(steps.train))
        return steps.training

    def steps(self) -> UnitSteps:
        """The units, and the parts of the one that is left, to be trained one by one. They share what they
        make of their data as a run's units do."""
        made = None
        if room_bytes := self._check.room_bytes:
            made = MadeBatches(Path(self._folder, self._room or uuid.uuid4().hex), room_bytes, _RUN)
        parts = [(number, part, replace(job, made=made)) for number, part, job in self._parts()]
        return UnitSteps(self._check.task, parts, self._folder, self._check.root)

    def _parts(self) -> Iterator[tuple[int, int, UnitJob]]:
        split = self._split()
        for number, job in enumerate(self._check.jobs):
            if number == split:
                yield number, 0, replace(job, stop=partial(le, 1))
                yield number, 1, replace(job, skip=1)
            else:
                yield number, 0, job

    def _split(self) -> int | None:
        """The index of a unit after the first with more than one batch."""
        numbers = (n for n, job in enumerate(self._check.jobs) if n and job_batches.unit_batches(job) > 1)
        return next(numbers, None) if self._check.task.splits else None

    def _in_child(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        seconds = max(0.0, self._deadline - time.monotonic())
        caught = partial(_caught, work, self._check.root, self._check.jobs[0].device)
        return call_in_fork(partial(without_workers, caught), seconds)


class UnitSteps:
    """What is left of a config's units: ``parts`` are their numbers, the number of the part, and the job."""

    def __init__(
        self, task: _CheckedTask, parts: list[tuple[int, int, UnitJob]], folder: str, root: Path
    ) -> None:
        self._task, self._folder, self._root = task, folder, root
        self._head: CheckpointRef | None = None
        self._taken: Sequence[str] = ()
        self.left = parts
        """The parts that are not trained yet."""
        self.training = Training()
        """The parts that are."""

    def train(self) -> dict[str, Any]:
        """Train the next part in this process; the answer is for ``take``."""
        number, parts, job = self.left[0]
        witness = _Witness(number, job, parts, self._taken)
        state = checkpoint.load(self._head) if self._head is not None else None
        with self._task.observed(witness):
            watched = replace(job, state=state, beat=witness.beat, watch=witness.watch)
            result = self._task.train(watched)
        saved = checkpoint.save(result.state, f"{self._folder}/{uuid.uuid4().hex}")
        witness.note(result.log, [result.metrics] if job.last and result.whole else [])
        shown = asdict(witness.training)
        return {**shown, "taken": witness.taken, "head": asdict(saved), "done": result.done}

    def train_here(self) -> None:
        """Train the next part in this process, with all that the parts before have left in it."""
        self.take(_caught(self.train, self._root, self.left[0][2].device))

    def take(self, answer: Mapping[str, Any]) -> None:
        """Note what the next part has been."""
        training = Training.of_json(answer)
        if training.error is not None:
            self.left, self.training = [], training
            return
        self.training.moments += training.moments
        self.training.logged += training.logged
        self.training.metrics += training.metrics
        self._head, self._taken = CheckpointRef(**answer["head"]), answer["taken"]
        self.left = [] if answer["done"] else self.left[1:]


_RUN = "0" * 64
"""Stands for the run that keeps it."""


class _Witness:
    """Records a training. The places of batches in an ordinary fit do not matter."""

    def __init__(self, number: int, job: UnitJob, parts: int = 0, taken: Sequence[str] = ()) -> None:
        self.training = Training()
        self._job = job
        self._hops, self._parts = number, parts
        self._batches = job_batches.unit_batches(job)
        self._batch = job.skip
        self.taken = list(taken)
        """The batches since the last moment, also of parts of the unit before."""

    def beat(self) -> None:
        """Record that the training takes the next batch."""
        self._batch += 1

    def watch(self, batch: Any) -> None:
        """Record the batch, as a value of the next moment."""
        self.taken.append(digest_of(repr(fingerprints({BATCH: batch})).encode()))

    def __call__(self, when: str, values: Mapping[str, Any]) -> None:
        unit = self._job.unit
        place = f"unit {self._hops + 1} (epoch {unit.epoch}, partition {unit.partition})"
        if batch := min(self._batch, self._batches):
            place = f"batch {batch} of {place}"
        texts = fingerprints(values)
        if self.taken:
            texts[BATCH] = digest_of("".join(self.taken).encode())
            self.taken.clear()
        self.training.moments.append(self._moment(when, f"{when} {place}", texts))

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


def without_workers(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Do the work, and end the processes that have made batches for it: a child exits without that."""
    try:
        return work()
    finally:
        if (processes := sys.modules.get("cerebro_elastic.data.reading.worker_processes")) is not None:
            processes.end_idle()


def _caught(work: Callable[[], dict[str, Any]], root: Path, device: str) -> dict[str, Any]:
    """Catch any exception of users' code, in the child, which is the first to use the ``device``."""
    try:
        use(device)
        return work()
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        return {"error": explain_error(error, root)}


class UnitsInARow(Observed):
    """Shows the state after each whole unit, and stands for ``SupportsCheck`` of any ``task``."""

    def __init__(self, task: Task) -> None:
        self._task = task

    @property
    def splits(self) -> bool:
        return self._task.splits

    def train(self, job: UnitJob) -> UnitResult:
        result = self._task.train(job)
        if self._observe is not None and result.whole:
            self._observe("after", {"state": result.state})
        return result

    def ordinary_fit(self, jobs: Sequence[UnitJob], observe: Observe) -> OrdinaryFit:
        log: list[MetricRow] = []
        metrics: list[Mapping[str, float]] = []
        state = None
        undisturbed = getattr(self._task, "undisturbed", nullcontext)
        with self.observed(observe), undisturbed():
            for job in jobs:
                result = self.train(replace(job, state=state))
                state = result.state
                log += result.log
                metrics += [result.metrics] if job.last else []
                if result.done:
                    break
        return OrdinaryFit(log, metrics)
