"""The task protocol: the narrow waist between the system and what a user trains.

The core knows nothing else of a task. Adapters (``torch`` in this package, ``lightning`` in
``plugins/cerebro_lightning``) are found by the entry-point group ``cerebro.tasks``; an adapter
is a factory ``(section, root) -> Task`` with the recipe's ``task`` section and the folder of
the recipe, from which users' modules are imported.

*State* is a tree of dicts, lists, tuples, sets, tensors, arrays, numbers, strings, bytes and
``None`` that holds everything the next unit needs: model, optimizers (by parameter name),
schedulers, loop counters, RNG, callbacks. It is parallelism-neutral: full tensors by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from torch import Tensor

from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.core.model.units import Phase, Strategy, Unit
from cerebro_elastic.data.batches import LoaderSettings
from cerebro_elastic.data.partition import Partition

TaskState: TypeAlias = Mapping[str, Any]
MetricRow: TypeAlias = Mapping[str, float]
"""One logged row: metrics by name, with ``step`` (the config's global step) and ``epoch``."""
Observe: TypeAlias = Callable[[str, Mapping[str, Any]], None]
"""Takes note of a moment of training, named in words ("after", "before" a batch, ...), and of all that the
training consists of then: by kind ("weight", "optimizer", "attribute", ...), trees of values."""


def nothing() -> None:
    """Nobody waits."""


def never(_done: int) -> bool:
    """Nobody asks the unit to stop."""
    return False


@dataclass(frozen=True)
class UnitJob:
    """All that a unit's result may depend on (purity, invariant 7).

    ``visited`` are the partitions done in this epoch before this one, in order; ``rows[j]`` is the number of
    rows of training partition ``j``, so that the length of the whole epoch is known; ``validation`` has the
    validation partitions if validation belongs to the epoch's last unit, else it is empty. Only a unit that
    ``validates`` reads them; in the others they are fetched if somebody looks into them. ``state`` is
    ``None`` for a config's first unit; it is given away, so that the unit may train in its very tensors. If
    ``state`` is another config's, ``inherits`` are the hyper-parameters with which it was made: what they
    have set in it (learning rates, say) is set anew by ``hparams``, and all else is inherited
    (``training/inheriting.py``). ``epochs`` is the config's budget of epochs, ``seed`` the run's seed.
    ``strategy`` says by which parallelism the unit is trained, and on how many ranks.

    ``room`` is how many bytes the unit may take on a rank, if that is to be known before it is trained: for a
    trial. A task that sees before the first batch that it needs more, or that the choice cannot train the
    config at all, raises ``TaskError`` (``parallel/memory_estimate.py`` estimates).

    ``skip`` is how many of the partition's batches were trained before, up to where ``state`` stands: the
    unit goes on behind them, and the parts of a unit, together, do exactly what it does in one go: equal
    state, bit for bit, equal metrics at its end, and the same rows logged. ``stop`` is asked before every
    further batch, with the number of the partition's batches that are trained (those skipped included). When
    it says yes, a task that ``splits`` ends the unit at this batch boundary, and one that does not raises
    ``Stopped``; so does a unit that evaluates. It is not asked before the first batch, so that each attempt
    gets on, nor after the last one: what belongs to the epoch's end, validation too, is then done. ``beat``
    is called for every batch, in validation too: who waits sees that something happens. ``training/feed.py``
    does all this for whoever takes its batches.
    """

    unit: Unit
    hparams: HParams
    seed: int
    epochs: int
    visited: tuple[int, ...]
    rows: tuple[int, ...]
    partition: Partition
    validation: Sequence[Partition]
    loader: LoaderSettings
    state: TaskState | None
    inherits: HParams | None = None
    device: str = "cpu"
    skip: int = 0
    strategy: Strategy = Strategy()
    beat: Callable[[], None] = nothing
    stop: Callable[[int], bool] = never
    room: int | None = None

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
    """What a unit yields. ``metrics`` are those known at its end (after the epoch's last unit: the
    epoch's); ``log`` the rows logged during it, in order; ``done`` says that the task ends the config's
    training here (early stopping). ``samples`` and ``batches`` count those trained by this job, so without
    those skipped. ``whole`` is false if it was stopped before the end of its partition: ``skip + batches`` is
    where to go on. ``not_finite`` tells which loss or parameter is NaN or infinite at the end of a whole
    unit, if one is; a part does not tell, for a unit's fate must not depend on where it was split."""

    state: TaskState
    samples: int
    batches: int
    metrics: Mapping[str, float]
    log: Sequence[MetricRow] = ()
    done: bool = False
    whole: bool = True
    not_finite: str | None = None


class Stopped(BaseException):
    """The unit was asked to stop; ``batches`` of its partition are trained. Raised by ``feed`` in place of
    the next batch: a task that ``splits`` catches it there and ends the unit, through any other it passes.
    No ``Exception``: it is not for the user's code to catch."""

    def __init__(self, batches: int) -> None:
        super().__init__(f"asked to stop after {batches} batches")
        self.batches = batches


class Task(Protocol):
    """What trains. One instance serves all units of a rank; it keeps nothing between units
    that a result could depend on."""

    def check(self, hparams: HParams) -> None:
        """Raise ``TaskError`` if these hyper-parameters cannot be used: an unknown name lists the
        accepted ones. Cheap; called for every config before a run starts."""

    def train(self, job: UnitJob) -> UnitResult:
        """One pass over the job's partition, from ``job.state``; or a part of one, see ``UnitJob``."""

    def evaluate(self, job: UnitJob) -> UnitResult:
        """Metrics over ``job.partition`` without changing the state (its result has the state
        that it got). Raise ``TaskError`` from ``check`` time on if the task does not allow it."""

    @property
    def evaluates(self) -> bool:
        """Whether ``evaluate`` units are allowed."""

    @property
    def splits(self) -> bool:
        """Whether a unit may be stopped at a batch boundary and taken up again elsewhere."""


@runtime_checkable
class SupportsPrecheck(Protocol):
    """A task that can tell what cannot be trained before anything is."""

    def refusal(self, hparams: HParams, strategy: Strategy) -> str | None:
        """Why a model of these hyper-parameters cannot be trained by ``strategy``; ``None`` if nothing speaks
        against it so far. Cheap: no memory for parameters is taken."""


GENERATORS = "the random generators of torch, numpy and Python: dropout and augmentation draw anew"
"""What no exported model carries."""


@dataclass(frozen=True)
class OrdinaryFit:
    """What an ordinary fit has logged: all rows in order, and each epoch's metrics."""

    log: Sequence[MetricRow]
    metrics: Sequence[Mapping[str, float]]


@runtime_checkable
class SupportsCheck(Protocol):
    """A task that can also train as a program without units does, so that ``cerebro check`` can compare."""

    def ordinary_fit(self, jobs: Sequence[UnitJob], observe: Observe) -> OrdinaryFit:
        """Train the batches of ``jobs``, all units of a config in their order, in one go: nothing is taken
        apart and put together again between two of them. ``observe`` is shown the moments that it is shown in
        units."""

    def observed(self, observe: Observe) -> AbstractContextManager[None]:
        """Within it, ``train`` shows ``observe`` the same moments, in the same order."""


@dataclass(frozen=True)
class Exported:
    """A trained model for whoever has nothing of ours installed: its ``weights`` by name, a ``checkpoint`` in
    the format of the task's framework, if it has one, and Python code that shows how to ``load`` them, with
    ``MODEL`` and ``CHECKPOINT`` for the files' names. ``not_carried`` names what the config has in its state
    and these have not: who goes on from them goes on without it."""

    weights: Mapping[str, Tensor]
    load: str
    checkpoint: Mapping[str, Any] | None = None
    not_carried: Sequence[str] = ()


@runtime_checkable
class Exports(Protocol):
    """A task whose models can be exported."""

    def export(self, hparams: HParams, state: TaskState, seed: int, epochs: int, batches: int) -> Exported:
        """The model of a config with ``state`` at the end of an epoch of ``batches`` batches, in a run with
        this seed and budget of ``epochs``."""
