"""The task protocol: the system's only interface to a user's training.

An adapter is a factory ``(section, root) -> Task``. ``section`` is the recipe's section ``task``, ``root``
the recipe's folder, from which users' modules are imported. Adapters are found by the entry-point group
``cerebro.tasks``: ``torch`` is in this package, ``lightning`` in ``plugins/cerebro_lightning``.

A *state* holds everything that the next unit needs: model, optimizers (by parameter name), schedulers, loop
counters, random generators, callbacks. It is a tree of dicts, lists, tuples, sets, tensors, arrays, numbers,
strings, bytes and ``None``. Arrays are numpy's, torch's, JAX's or of any library that follows the array API
standard; those of others than torch come back as numpy's. A model that several parallelisms train keeps full
tensors by name, so that any of them can take it up.

A task's section declares the arrays of its batches (``TaskSection.ARRAYS``). A rank whose task takes numpy's
does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, runtime_checkable

from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.core.model.units import Phase, Strategy, Unit
from cerebro_elastic.data.reading.batches import batches
from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.data.reading.made_once import DataUse, MadeBatches
from cerebro_elastic.data.reading.partition import Partition
from cerebro_elastic.hop.checkpoint import Still

TaskState: TypeAlias = Mapping[str, Any]
"""A config's state between two units (see the module)."""
MetricRow: TypeAlias = Mapping[str, float]
"""One logged row: metrics by name, with ``step`` (the config's global step) and ``epoch``."""
Observe: TypeAlias = Callable[[str, Mapping[str, Any]], None]
"""Takes a moment of training ("before" a batch, "after" a unit, ...) and all that the training consists of
then: trees of values by kind ("weight", "optimizer", "attribute", ...)."""


@dataclass(frozen=True, slots=True)
class LossWeights:
    """The weights of rows in the loss."""

    classes: tuple[float, ...] = ()
    """The weight of each class; empty: all weigh alike."""
    samples: bool = False
    """Whether the batches are ``(x, y, w)``, where ``w`` weighs each row."""

    def __bool__(self) -> bool:
        return bool(self.classes) or self.samples


EVEN = LossWeights()
"""All rows weigh alike."""


def nothing(*_: object) -> None:
    """A ``UnitJob.beat`` or ``UnitJob.watch`` without effect."""


def never(_done: int) -> bool:
    """A ``UnitJob.stop`` that lets the unit end."""
    return False


MakesBatches: TypeAlias = Callable[..., Generator[Any, None, None]]
"""As ``data/reading/batches.py:batches``."""


@dataclass(frozen=True)
class UnitJob:
    """One unit of a config, and all that its result may depend on (purity, invariant 7).

    ``training/job_batches.py`` takes the batches of a job, and calls ``stop``, ``beat`` and ``watch`` then.
    """

    unit: Unit
    """Config, epoch, partition and phase."""
    hparams: HParams
    """The config's hyper-parameters by name."""
    seed: int
    epochs: int
    """The config's budget of epochs."""
    visited: tuple[int, ...]
    """The partitions done in this epoch before this one, in order."""
    rows: tuple[int, ...]
    """``rows[j]`` is the number of rows of training partition ``j``: they give the length of an epoch."""
    partition: Partition
    """The rows to train on, or to evaluate."""
    validation: Sequence[Partition]
    """The validation partitions if validation belongs to the epoch's last unit, else none. Only a unit that
    ``validates`` reads them; in other units a partition is fetched when the task looks into it."""
    loader: LoaderSettings
    """How the recipe makes batches. A config's own ``batch_size`` takes precedence."""
    state: TaskState | None
    """The state to start from; ``None`` for a config's first unit. It is given away: the unit may train in
    its very tensors."""
    device: str
    """The device of this rank, as torch names it."""
    stays: Mapping[str, Still] = field(default_factory=dict)
    """Those tensors of ``state`` that lie in a base (``hop/checkpoint/bases.py``), by name."""
    inherits: HParams | None = None
    """The hyper-parameters of the config that made ``state``, if that is another one. Values that they have
    set in the state, such as learning rates, are set again from ``hparams``; all else is inherited
    (``hop/optimizer_state.py``)."""
    skip: int = 0
    """The number of the partition's batches that were trained before, up to ``state``. The unit continues
    after them. The parts of a unit together equal a whole one: equal state, bit for bit, equal metrics at its
    end, and the same rows logged."""
    strategy: Strategy = Strategy()
    """The unit's parallelism and number of ranks."""
    beat: Callable[[], None] = nothing
    """To be called for every batch, in validation too: a sign of progress."""
    watch: Callable[[Any], None] = nothing
    """To be called with every batch, in validation too, before it is used: a check compares them."""
    stop: Callable[[int], bool] = never
    """Whether to stop after this number of batches of the partition, those skipped included.

    It is called before every batch except the first, so that each attempt makes progress, and not after the
    last one: then the epoch's end, with validation, is completed. When it returns true, a task that
    ``splits`` ends the unit at this batch boundary. Any other raises ``Stopped``; so does an evaluation."""
    loss_weights: LossWeights = EVEN
    """The weights of rows in the loss of the task ``torch``."""
    batches: MakesBatches = batches
    """The maker of a partition's batches. The ordinary fit with which units are compared has another one
    (``runs/exactness/own_batches.py``)."""
    made: MadeBatches | None = None
    """The batches that the host's ranks share; ``None``: this rank makes all its batches."""
    data_use: DataUse = field(default_factory=DataUse)
    """Counts the batches that were made and taken."""
    memory_limit_bytes: int | None = None
    """How many bytes the unit may take on a rank; ``None``: not limited. It is set for a profile. A task that
    sees before the first batch that it needs more, or that the strategy cannot train the config, raises
    ``TaskError`` (``check_room`` of ``training/parallel/base.py`` estimates)."""

    @property
    def begins_epoch(self) -> bool:
        """Whether nothing of the epoch was trained before."""
        return not self.visited and not self.skip

    @property
    def last(self) -> bool:
        """Whether this unit ends the epoch (if it is not stopped before its end)."""
        return len(self.visited) + 1 == len(self.rows)

    @property
    def validates(self) -> bool:
        """Whether the unit ends with the epoch's validation (if it is not stopped before its end)."""
        return bool(self.validation) and self.last and self.unit.phase is Phase.TRAIN


@dataclass(frozen=True)
class UnitResult:
    """A task's result of a unit."""

    state: TaskState
    """The state to continue from."""
    samples: int
    """How many rows this job has trained; those of skipped batches do not count."""
    batches: int
    """How many batches this job has trained, without those skipped."""
    metrics: Mapping[str, float]
    """The metrics at the unit's end, by name. After the epoch's last unit: those of the epoch."""
    log: Sequence[MetricRow] = ()
    """The rows logged during the unit, in order."""
    done: bool = False
    """Whether the task ends the config's training here (early stopping)."""
    whole: bool = True
    """Whether the unit reached the end of its partition. If not, it continues after ``skip + batches``
    batches."""
    before: Mapping[str, Still] = field(default_factory=dict)
    """Further tensors of the state for a base, as they were when the unit began: those that it does not
    train. A value that differs when it is saved hops like all others."""
    not_finite: str | None = None
    """The loss or parameter that is NaN or infinite at the end of a whole unit. ``None`` if none is, and for
    a part of a unit: a unit's outcome must not depend on where it was split."""


class Stopped(BaseException):
    """The unit was stopped after ``batches`` batches of its partition.

    ``job_batches`` raises it in place of the next batch. A task that ``splits`` catches it there and ends the
    unit; any other lets it pass. It is no ``Exception``, so that the user's code does not catch it.
    """

    def __init__(self, batches: int) -> None:
        super().__init__(f"stopped after {batches} batches")
        self.batches = batches


class Task(Protocol):
    """Trains units. One instance serves all units of a rank. It keeps nothing between units on which a result
    could depend."""

    def check(self, hparams: HParams) -> None:
        """Check the hyper-parameters of one config. Cheap: it is called for every config before a run starts.

        Raises:
            TaskError: They cannot be used; for an unknown name the error lists the accepted ones.
        """

    def train(self, job: UnitJob) -> UnitResult:
        """Train on the job's partition, from ``job.state`` on; or on a part of it (``UnitJob.skip``,
        ``UnitJob.stop``)."""

    def evaluate(self, job: UnitJob) -> UnitResult:
        """Measure metrics over ``job.partition``. The result has the state that the job had.

        Raises:
            TaskError: The task has nothing to measure with (``evaluates`` is false).
        """

    @property
    def evaluates(self) -> bool:
        """Whether the task can ``evaluate``."""

    @property
    def splits(self) -> bool:
        """Whether a unit may be stopped at a batch boundary and continued elsewhere."""


@runtime_checkable
class SupportsPrecheck(Protocol):
    """A task that can refuse a config before anything is trained."""

    def refusal(self, hparams: HParams, strategy: Strategy) -> str | None:
        """Why ``strategy`` cannot train a model of these hyper-parameters; ``None`` if nothing is known
        against it. Cheap: it takes no memory for parameters."""


@runtime_checkable
class HasNotes(Protocol):
    """A task that reports before the start which of the user's settings it leaves out."""

    def notes(self, hparams: HParams) -> Sequence[str]:
        """A sentence for each."""


@runtime_checkable
class ReadsFiles(Protocol):
    """A task whose results depend on files besides code, such as an initial model's. A run records their
    digests, and machines with other files are refused."""

    def files(self, hparams: HParams) -> Mapping[str, Sequence[str]]:
        """The files of a config: by folder, as the recipe names it (``folder_named``), the patterns of their
        names. Other files in it do not matter."""


@runtime_checkable
class TakesByName(Protocol):
    """A task that declares its hyper-parameters. Any other gets none of those that the recipe's
    ``data.dataset`` takes."""

    def takes(self, name: str) -> bool:
        """Whether the task takes a hyper-parameter of this name."""


@runtime_checkable
class SetsThreads(Protocol):
    """A task whose framework has its own threads. Those of torch are set for it."""

    def set_threads(self, threads: int) -> None:
        """Use this number of threads, in this process and before its first unit."""


@runtime_checkable
class WeighsLosses(Protocol):
    """A task that can weigh rows in its loss."""

    def check_weights(self, strategies: Sequence[Strategy]) -> None:
        """Raise ``TaskError`` if the loss cannot be weighted, or by none of the ``strategies``."""


@runtime_checkable
class WatchesValidation(Protocol):
    """A task whose library validates within a fit, where code may watch it."""

    def why_not_apart(self, hparams: HParams, strategies: Sequence[Strategy]) -> str | None:
        """Why a config cannot be validated by separate units; ``None`` if it can."""


@dataclass(frozen=True)
class ModelValues:
    """A model's values on a test set."""

    metrics: Mapping[str, float]
    """The metrics over all rows, by name."""
    rows: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """By name, the metric of each row alone. Metrics without values of single rows are left out."""


@runtime_checkable
class SupportsTest(Protocol):
    """A task that can measure a model on a test set."""

    def measure_test(self, job: UnitJob) -> ModelValues:
        """Measure the model of ``job.state`` on ``job.partition``, which has the test set.

        Raises:
            TaskError: The task has nothing to measure with.
        """


GENERATORS = "the random generators of torch, numpy and Python: dropout and augmentation draw other numbers"
"""Parts of a state that no exported model has."""


@dataclass(frozen=True)
class OrdinaryFit:
    """The logged values of an ordinary fit."""

    log: Sequence[MetricRow]
    """All rows, in order."""
    metrics: Sequence[Mapping[str, float]]
    """Each epoch's metrics by name."""


@runtime_checkable
class SupportsCheck(Protocol):
    """A task that can also train without units: ``cerebro check`` compares with that. With any other it
    compares the same units in one process."""

    def ordinary_fit(self, jobs: Sequence[UnitJob], observe: Observe) -> OrdinaryFit:
        """Train the batches of ``jobs``, all units of a config in their order, with one model in one go.

        ``observe`` is called at the same moments as in units.
        """

    def observed(self, observe: Observe) -> AbstractContextManager[None]:
        """Have ``train`` call ``observe`` at the same moments, in the same order, within the block."""


class Observed:
    """``SupportsCheck.observed`` of a task that calls ``_observe``, if any."""

    _observe: Observe | None = None

    @contextmanager
    def observed(self, observe: Observe) -> Iterator[None]:
        self._observe = observe
        try:
            yield
        finally:
            self._observe = None


@dataclass(frozen=True)
class Exported:
    """A trained model for use without this package."""

    weights: Mapping[str, Any]
    """The model's arrays or tensors by name."""
    load: str
    """Python code that loads them, with ``MODEL`` and ``CHECKPOINT`` for the names of the files."""
    checkpoint: Mapping[str, Any] | None = None
    """A checkpoint in the format of the task's framework, if it has one."""
    file: str = "model.safetensors"
    """The name of the file of ``weights``."""
    further: Mapping[str, bytes] = field(default_factory=dict)
    """The contents of further files by name, such as a config of the framework."""
    card: Mapping[str, str] = field(default_factory=lambda: {"library_name": "pytorch"})
    """The entries of the model card for programs, such as the library that loads the model."""
    not_carried: Sequence[str] = ()
    """The config's state that neither of them has: training that continues from them lacks it."""


@runtime_checkable
class Exports(Protocol):
    """A task whose models can be exported."""

    def export(self, hparams: HParams, state: TaskState, seed: int, epochs: int, batches: int) -> Exported:
        """Export the model of a config.

        Args:
            hparams: The config's hyper-parameters.
            state: Its state at the end of an epoch.
            seed: The run's seed.
            epochs: The config's budget of epochs.
            batches: How many batches an epoch has.
        """


@runtime_checkable
class ExportsMerged(Protocol):
    """A task whose models may have adapters, and can be exported with their base as one model."""

    def export_merged(
        self, hparams: HParams, state: TaskState, seed: int, epochs: int, batches: int
    ) -> Exported:
        """As ``Exports.export``, the adapter merged into its base."""
