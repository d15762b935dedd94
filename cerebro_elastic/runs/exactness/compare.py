"""Compares units of a config with one ordinary fit, bit by bit, on a few batches.

Each unit, and the ordinary fit, is trained by its own forked child, which begins like this process: with the
user's modules imported and nothing else done. So state kept in the process, and not in the config, is as
absent after a hop as it is on another node. Units make, keep and share batches as in a run; the batches of
the ordinary fit are those of the user's own loader (``own_batches.py``)."""

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
    LOGGED,
    METRIC,
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
)


class _CheckedTask(SupportsCheck, Protocol):
    """A task that trains both ways."""

    def train(self, job: UnitJob) -> UnitResult: ...

    @property
    def splits(self) -> bool: ...


@dataclass
class Training:
    """The observations of a training."""

    moments: list[Moment] = field(default_factory=list)
    error: str | None = None
    """The error that ended it."""

    @property
    def in_order(self) -> list[Moment]:
        """Its moments, then its logged rows, then its epochs' metrics."""
        return sorted(self.moments, key=lambda moment: _LAST.get(moment.when, 0))

    @classmethod
    def of_json(cls, answer: Mapping[str, Any]) -> Self:
        """The training in a child's answer."""
        return cls([Moment(**moment) for moment in answer.get("moments", ())], answer["error"])


_LAST = {LOGGED: 1, METRIC: 2}


class ExactnessCheck:
    """The check of a config by ``jobs``, its units.

    They are trained as units and as one ordinary fit, and compared. A task that has no ordinary fit trains
    the same units in one process instead, and their states are compared.

    The user's files are below ``root``; states, and data kept by units, are in ``folder`` during the check,
    at most ``room_bytes`` of the latter. It takes at most ``seconds``."""

    def __init__(
        self,
        task: Task,
        jobs: Sequence[UnitJob],
        root: Path,
        folder: str,
        seconds: float,
        *,
        room_bytes: int = 1 << 30,
    ) -> None:
        self.seconds, self.folder = seconds, folder
        self._task = task if isinstance(task, SupportsCheck) else UnitsInARow(task)
        self._reference = ORDINARY_FIT if self._task is task else IN_A_ROW
        self._jobs, self._root, self._room_bytes = jobs, root, room_bytes
        self.alone = Training()
        """Its units, each in its own process, once the result is known."""
        self.varying: Sequence[str] = ()
        """The names of values that differ each time."""

    def result(self) -> Exactness:
        """Train, and compare."""
        began = time.monotonic()
        with TemporaryDirectory(dir=self.folder) as states:
            try:
                result = self._compared(states, began + self.seconds)
            except ChildDied as died:
                result = Exactness(CheckOutcome.UNKNOWN, f"it could not be checked: {died}")
        return replace(result, seconds=time.monotonic() - began, reference=self._reference)

    def _compared(self, states: str, deadline: float) -> Exactness:
        ordinary, units = self._ordinary(deadline), self._units(states, deadline)
        self.alone = units
        if units.error is not None:
            in_units_alone = "" if ordinary.error else f"in units, and not in {self._reference}: "
            return Exactness(CheckOutcome.FAILED, f"{in_units_alone}{units.error}")
        if ordinary.error is not None:
            story = f"units can train it, and {self._reference} cannot: {ordinary.error}"
            return Exactness(CheckOutcome.DIFFERS, story)
        compared = Counter(kind_of(name) for moment in units.moments for name in moment.values)
        metrics = {name for moment in units.moments if moment.when == METRIC for name in moment.values}
        logged = sorted(name.partition(" ")[2] for name in metrics)
        seen = Exactness(CheckOutcome.EQUAL, compared=dict(compared), logged=logged)
        differing = differences(ordinary.in_order, units.in_order)
        if not differing:
            return seen
        self.varying = names_of(differences(ordinary.in_order, self._ordinary(deadline).in_order))
        if is_chance(self.varying):
            story = explain_chance(self.varying)
            return replace(seen, outcome=CheckOutcome.NOT_DETERMINISTIC, story=story)
        rest = steady(differing, self.varying)
        if trains_nothing(rest):
            return replace(seen, story=explain_scratch(names_of(differing)))
        return replace(seen, outcome=CheckOutcome.DIFFERS, story=explain(rest, self._reference))

    def _ordinary(self, deadline: float) -> Training:
        """One ordinary fit."""

        def fit() -> dict[str, Any]:
            witness = _Witness(0, self._jobs[0])
            jobs = [
                replace(job, batches=own_batches, watch=witness.watch, beat=witness.beat)
                for job in self._jobs
            ]
            fitted = self._task.ordinary_fit(jobs, witness)
            witness.note(fitted.log, fitted.metrics)
            return asdict(witness.training)

        return Training.of_json(self._in_child(fit, deadline))

    def _units(self, states: str, deadline: float) -> Training:
        """Unit by unit, each in its own process."""
        steps = self.steps(states, "alone")
        while steps.left:
            steps.take(self._in_child(steps.train, deadline))
        return steps.training

    def steps(self, states: str, room: str) -> UnitSteps:
        """The units to train one by one; one of them in two parts, if the task can leave a unit.

        States hop by checkpoints in the folder ``states``. Units keep and share the results of their data
        work in its ``room``, as a run's units do."""
        made = MadeBatches(Path(states, room), self._room_bytes, _RUN) if self._room_bytes else None
        parts = [(number, part, replace(job, made=made)) for number, part, job in self._parts()]
        return UnitSteps(self._task, parts, states, self._root)

    def _parts(self) -> Iterator[tuple[int, int, UnitJob]]:
        split = self._split()
        for number, job in enumerate(self._jobs):
            if number == split:
                yield number, 0, replace(job, stop=partial(le, 1))
                yield number, 1, replace(job, skip=1)
            else:
                yield number, 0, job

    def _split(self) -> int | None:
        """The index of a unit after the first with more than one batch."""
        numbers = (n for n, job in enumerate(self._jobs) if n and job_batches.unit_batches(job) > 1)
        return next(numbers, None) if self._task.splits else None

    def _in_child(self, work: Callable[[], dict[str, Any]], deadline: float) -> dict[str, Any]:
        seconds = max(0.0, deadline - time.monotonic())
        caught = partial(_caught, work, self._root, self._jobs[0].device)
        return call_in_fork(partial(without_workers, caught), seconds)


class UnitSteps:
    """The remaining units of a config: ``parts`` are their numbers, the number of the part, and the job."""

    def __init__(
        self, task: _CheckedTask, parts: list[tuple[int, int, UnitJob]], folder: str, root: Path
    ) -> None:
        self._task, self._folder, self._root = task, folder, root
        self._head: CheckpointRef | None = None
        self._taken: Sequence[str] = ()
        self.left = parts
        """The untrained parts."""
        self.training = Training()
        """The observations of the trained parts."""

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
        """Train the next part in this process, with everything that earlier parts have left in it."""
        self.take(_caught(self.train, self._root, self.left[0][2].device))

    def take(self, answer: Mapping[str, Any]) -> None:
        """Record the next part's training."""
        training = Training.of_json(answer)
        if training.error is not None:
            self.left, self.training = [], training
            return
        self.training.moments += training.moments
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
        """The batches since the last moment, including those of the unit's earlier parts."""

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
        self._add(when, f"{when} {place}", texts)

    def note(self, rows: Iterable[MetricRow], metrics: Iterable[Mapping[str, float]]) -> None:
        """Record rows that the training logged, and its epochs' metrics."""
        for row in rows:
            self._logged(LOGGED, f"in the row of step {row.get('step')} of epoch {row.get('epoch')}", row)
        for means in metrics:
            self._logged(METRIC, f"at the end of epoch {self._job.unit.epoch}", means)

    def _logged(self, kind: str, place: str, values: Mapping[str, float]) -> None:
        texts = {f"{kind} {name}": repr(value) for name, value in values.items()}
        self._add(kind, place, texts)

    def _add(self, when: str, place: str, values: Mapping[str, str]) -> None:
        self.training.moments.append(Moment(when, place, self._hops, self._parts, values))


def without_workers(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Do the work, and end the processes that made its batches: a child's exit does not."""
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
