"""A base for tasks that train on NumPy's batches: all that adapters of different libraries do alike.

A subclass names the user's functions, and makes a ``Learner`` for each unit. The base checks
hyper-parameters, makes batches, restores random generators, validates, counts and logs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.errors import TaskError
from cerebro_elastic.hop import checkpoint
from cerebro_elastic.hop.checkpoint import Still
from cerebro_elastic.hop.checkpoint.tree import flatten
from cerebro_elastic.hop.generators import Generators, generators
from cerebro_elastic.hop.spoiled import spoiling
from cerebro_elastic.hop.user_globals import UserGlobals
from cerebro_elastic.system import arguments
from cerebro_elastic.system.process_settings import AsSetUp, borrowed
from cerebro_elastic.system.setting import Setting
from cerebro_elastic.training import job_batches
from cerebro_elastic.training.hparams import BUDGET, Taker, Takers
from cerebro_elastic.training.metrics import not_finite
from cerebro_elastic.training.task import ModelValues, Stopped, UnitJob, UnitResult
from cerebro_elastic.training.test_metrics import evaluated, measured_alone, row_by_row


class UnitBatches:
    """The training batches of a unit. They end early when a unit of a task that ``splits`` must stop."""

    def __init__(self, job: UnitJob, *, splits: bool = True) -> None:
        self._job = job
        self._splits = splits
        self.done = job.skip
        """How many batches of the partition were taken, those before this job included."""

    def __iter__(self) -> Iterator[Any]:
        try:
            for batch in job_batches.training_batches(self._job):
                self.done += 1
                yield batch
        except Stopped:
            if not self._splits:
                raise

    @property
    def whole(self) -> bool:
        """Whether all were taken."""
        return self.done == job_batches.unit_batches(self._job)


class Learner(ABC):
    """The model of one config during a unit. Random numbers come from the global generators, which the task
    restores, or from generators in the state."""

    done: bool = False
    """Whether the config's training ends with this unit."""
    validates: bool = False
    """Whether ``learn`` also validates, at the end of an epoch."""
    found: Mapping[str, Still] = {}
    """The initial arrays of a config's first unit (``as_found``). Arrays that it leaves unchanged lie in a
    base."""

    @abstractmethod
    def learn(self, batches: UnitBatches) -> Mapping[str, float]:
        """Train on each of the ``batches``. Returns the epoch's present metrics by name."""

    @abstractmethod
    def measure(self, batches: Iterator[Any]) -> Mapping[str, float]:
        """Metrics over the rows of all ``batches``, by names that get ``val_`` before them."""

    @abstractmethod
    def state(self) -> Mapping[str, Any]:
        """All that the next unit needs, as a tree of plain values and arrays."""

    @abstractmethod
    def arrays(self) -> Mapping[str, Any]:
        """The arrays that must be finite after a unit, by name."""


def as_found(part: Mapping[str, Any]) -> Mapping[str, Still]:
    """The arrays in a part of a state as they are now."""
    return checkpoint.as_they_are(flatten(part)[1])


class ArrayTask(ABC):
    """A task of NumPy's arrays.

    Args:
        takers: The user's functions by role, such as ``model_fn``, with their arguments besides
            hyper-parameters and ``BUDGET``.
        args: The section's ``args``: arguments that are not searched.
    """

    generators: Generators = generators
    """The global random generators."""
    settings: Sequence[Setting] = ()
    """The framework's settings of the process, besides those of Python, numpy and torch."""
    makes_again = False
    """Whether each unit calls the functions that make the model; else only a config's first one does."""
    _undisturbed = False

    def __init__(self, takers: Mapping[str, Taker], args: Mapping[str, Any]) -> None:
        self._takers = Takers(
            {role: (function, context | BUDGET) for role, (function, context) in takers.items()},
            args,
            BUDGET.union(*(context for _, context in takers.values())),
        )
        self._globals = UserGlobals(function for function, _ in takers.values())

    @abstractmethod
    def learner(self, job: UnitJob) -> Learner:
        """The learner of a unit, with ``job.state``, or as it begins without one."""

    @property
    def evaluates(self) -> bool:
        return True

    @property
    def splits(self) -> bool:
        return True

    def check(self, hparams: HParams) -> None:
        self._takers.check(hparams)

    def takes(self, name: str) -> bool:
        """Whether a function takes a hyper-parameter of this name."""
        return self._takers.takes(name)

    def values(self, job: UnitJob) -> dict[str, Any]:
        """All parameters that functions may name, except their context."""
        return self.values_for(job.hparams, job.epochs, job_batches.epoch_batches(job))

    def values_for(self, hparams: HParams, epochs: int, batches: int) -> dict[str, Any]:
        """The same, for training of ``epochs`` epochs with ``batches`` batches each."""
        given = arguments.combined(self._takers.args, hparams)
        return {**given, "epochs": epochs, "steps": epochs * batches}

    def train(self, job: UnitJob) -> UnitResult:
        batches = UnitBatches(job, splits=self.splits)
        with self._borrowed():
            settings = AsSetUp(self.settings)  # a model may be made once for several units
            learner = self._begun(job)
            if job.loader.calls_user and not self.makes_again:
                with spoiling():
                    self._refuse_variables(settings.added())
            metrics = dict(learner.learn(batches))
            if batches.whole and job.validates and self.evaluates and not learner.validates:
                metrics |= self._measured(learner, job, job.validation)
            step = (job.state["step"] if job.state else 0) + batches.done - job.skip
            with spoiling():
                settings.check()
            state = {**learner.state(), "generators": self.generators.capture(), "step": step}
        whole = batches.whole
        return UnitResult(
            state=state,
            before=learner.found,
            samples=job_batches.rows_until(job, batches.done),
            batches=batches.done - job.skip,
            metrics=metrics,
            log=[{"step": step, "epoch": job.unit.epoch, **metrics}] if whole else [],
            done=whole and learner.done,
            whole=whole,
            not_finite=not_finite(metrics, learner.arrays().items()) if whole else None,
        )

    def evaluate(self, job: UnitJob) -> UnitResult:
        if not self.evaluates or job.state is None:
            raise TaskError(f"{job.unit}: an evaluation needs a trained state, and a task that measures")
        with self._borrowed():
            learner = self._begun(job)
            metrics = self._measured(learner, job, [job.partition])
        return evaluated(job, metrics)

    def measure_test(self, job: UnitJob) -> ModelValues:
        if not self.evaluates or job.state is None:
            raise TaskError("a test set needs a task that measures: give it an `eval_fn`")

        with self._borrowed():
            learner = self._begun(job)
            metrics = self._measured(learner, job, [job.partition], "test")
            return ModelValues(metrics, self._alone(learner, job))

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Within the block nothing that is set in the process is undone between units, as in one ordinary
        program (``cerebro check``)."""
        with self._borrowed():
            self._undisturbed = True
            try:
                yield
            finally:
                self._undisturbed = False

    @contextmanager
    def _borrowed(self) -> Iterator[None]:
        if self._undisturbed:
            yield
            return
        with self._globals.borrowed(), borrowed(self.settings), self.generators.borrowed():
            yield

    def _refuse_variables(self, added: Sequence[str]) -> None:
        """Libraries add variables, too; variables that the user's files name count as the user's."""
        if named := [name for name in added if self._globals.mention(name)]:
            raise TaskError(
                f"os.environ[{named[0]!r}] was set while the model was made: it holds in a config's first "
                "unit alone, and batches are made in all. Set it when the file is imported, or "
                "give the function that reads it the hyper-parameter as an argument"
            )

    def _begun(self, job: UnitJob) -> Learner:
        if job.state is None:
            self.generators.seed_all(job.seed)
        else:
            self.generators.restore(job.state["generators"])
        return self.learner(job)

    def _measured(
        self, learner: Learner, job: UnitJob, partitions: Any, prefix: str = "val"
    ) -> dict[str, float]:
        measured = learner.measure(job_batches.natural_batches(job, partitions))
        return {f"{prefix}_{name}": float(value) for name, value in measured.items()}

    def _alone(self, learner: Learner, job: UnitJob) -> dict[str, list[float]]:
        """The metrics of each row of the job's partition alone, by name."""
        batches = job_batches.natural_batches(row_by_row(job), [job.partition])
        values = measured_alone(learner.measure, batches)
        return {f"test_{name}": each for name, each in values.items()}
