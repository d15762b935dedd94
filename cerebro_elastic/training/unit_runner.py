"""A run's task and data, ready for units; worker, replay and profiles share it."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from cerebro_elastic.core.history.lineage import is_newborn
from cerebro_elastic.core.model.codec import decode, encode
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.origin import values_digest
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.core.model.units import Phase, Strategy, Unit
from cerebro_elastic.data.manifest import Manifest, Split, check_unchanged
from cerebro_elastic.data.reading.cache import PartitionCache
from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.data.reading.made_once import MadeBatches
from cerebro_elastic.data.reading.made_twice import BATCHES
from cerebro_elastic.data.reading.partition import Partition, unopened
from cerebro_elastic.data.shards.counting import Home, counted
from cerebro_elastic.data.shards.making import make_columns
from cerebro_elastic.errors import RecipeError, TaskError
from cerebro_elastic.hop import checkpoint
from cerebro_elastic.hop.checkpoint import on_device
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.registry import import_object, load, naming_extras
from cerebro_elastic.system.cache_space import Room
from cerebro_elastic.training.hparams import dataset_factory, task_hparams
from cerebro_elastic.training.task import (
    LossWeights,
    ModelValues,
    SetsThreads,
    SupportsTest,
    Task,
    TaskState,
    UnitJob,
    UnitResult,
    never,
    nothing,
)


@dataclass(frozen=True, slots=True)
class StrategyCost:
    """The measured cost of training ``config`` by ``strategy``, or why the strategy is refused."""

    config: str
    strategy: Strategy
    batch_seconds: float = 0.0
    data_seconds: float = 0.0
    """The part of them spent waiting for the batch."""
    peak_bytes: int = 0
    """The most bytes that one rank had in use."""
    hop_seconds: float | None = None
    """Seconds that a hop (one load and one save of the state) keeps the node from training. ``None`` if the
    task cannot be left in the middle of a unit."""
    save_seconds: float = 0.0
    """Seconds of the save that overlap the node's next unit."""
    state_bytes: int | None = None
    """Bytes of the state that hop. ``None`` if the task cannot be left in the middle of a unit."""
    fixed_seconds: float = 0.0
    """Seconds of a unit besides its batches, to make the model, say."""
    refusal: str | None = None
    """Why the strategy cannot train the config; ``None`` if it can."""
    concurrent_units: int = 1
    """How many units this machine trained at the same time; seconds and bytes are their means."""


def make_task(recipe: Recipe) -> Task:
    """The recipe's task; ``TaskError`` if its modules cannot be used."""
    make = load("cerebro.tasks", recipe.task.kind)
    with naming_extras(recipe.task.kind):  # Keras is imported when its backend is known
        task: Task = make(recipe.task, recipe.root)
    return task


def use_threads(recipe: Recipe, task: Task, threads: int) -> None:
    """Have the frameworks of the recipe's task compute with this number of threads in this process."""
    if recipe.task.ARRAYS == "torch":
        import torch

        torch.set_num_threads(threads)
    if isinstance(task, SetsThreads):
        task.set_threads(threads)


class UnitRunner:
    """Makes jobs of units and performs them.

    Args:
        spec: The run.
        cache: The folder through which partitions come.
        device: Torch's name of the device to train on.
        cache_bytes: The most bytes of partitions in the cache; by default the recipe's.
        beat: Called again and again while a base is fetched.
    """

    def __init__(
        self,
        spec: Spec,
        cache: Path,
        device: str,
        cache_bytes: int | None = None,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self.recipe = spec.load_recipe()
        self._spec = spec
        self._plan = spec.plan
        self._task = make_task(self.recipe)
        self._url = spec.data
        self._manifest = check_unchanged(spec.data, spec.data_digest)
        self._loss_weights = loss_weights(self.recipe, self._manifest)
        limit = self.recipe.node.cache_bytes if cache_bytes is None else cache_bytes
        self.cache = PartitionCache(cache, limit, make_columns)
        checkpoint.keep_copies(cache, limit, beat)
        self.device = device
        self._made: MadeBatches | None = None
        self._loader = replace(
            loader_settings(self.recipe, self._manifest.datasets), anew=frozenset(spec.differing)
        )
        self._loader.check(self._manifest.columns)

    def use_threads(self) -> None:
        """Give the framework the recipe's number of threads: results depend on it in their last bits."""
        use_threads(self.recipe, self._task, self.recipe.node.threads)

    def share_batches(self, limit_bytes: int) -> None:
        """From now on share the batches that units make with the other ranks of the host, and keep opened
        rows; all of it takes at most ``limit_bytes``. Neither, if batches were not made the same again."""
        if BATCHES in self._spec.differing:
            return
        run = values_digest({"spec": encode(self._spec)})  # with the digests of data and code
        self._made = (
            MadeBatches(self.cache.root / f"made-{os.getuid()}", limit_bytes, run) if limit_bytes else None
        )

    def forget_batches(self) -> None:
        """Remove the shared batches of the run, which has ended."""
        if self._made is not None:
            self._made.forget()

    def fetch(self, phase: Phase, index: int, beat: Callable[[], None], room: Room = "needed") -> Partition:
        """A training or validation partition, fetched into the cache if necessary. ``beat`` is called often
        during that. Data not ``needed`` yet are fetched only if they find ``room`` (``NoRoom``)."""
        return self.cache.fetch(self._url, self._manifest, self._split(phase), index, beat, room)

    def count_rows(self, beat: Callable[[], None], home: Home = tuple) -> None:
        """Wait until the rows of shards are counted, and help, with those of the partitions at ``home``.
        ``beat`` is called often during that."""
        if self._manifest.estimated:
            self._manifest = counted(self._url, self._manifest, self.cache, beat, home)

    def holds(self, phase: Phase, index: int) -> bool:
        """Whether the cache holds a partition."""
        return self.cache.holds(self._manifest, self._split(phase), index)

    def _split(self, phase: Phase) -> Split:
        """Where the partitions of units of this phase are. Folds are training partitions."""
        return "valid" if phase is Phase.EVALUATE and not self._plan.folds else "train"

    def cached(self) -> tuple[int, ...]:
        """The training partitions that the cache holds."""
        return self.cache.cached(self._manifest)

    def all_cached(self) -> tuple[int, ...] | None:
        """The same, if the cache is limited, so that it drops partitions; else ``None``."""
        return None if self.cache.limit_bytes is None else self.cached()

    @property
    def splits(self) -> bool:
        """Whether a unit may be stopped at a batch boundary and continued elsewhere."""
        return self._task.splits

    def job(
        self,
        config: Config,
        unit: Unit,
        state: TaskState | None,
        *,
        strategy: Strategy = Strategy(),
        beat: Callable[[], None] = nothing,
        stop: Callable[[int], bool] = never,
        memory_limit_bytes: int | None = None,
        partition: Partition | None = None,
    ) -> UnitJob:
        """The job of ``unit`` for ``config`` in its present state: the whole unit, or its rest. See
        ``UnitJob``. ``partition`` replaces the unit's rows."""
        inherits = None
        if config.parent and is_newborn(config):
            inherits = task_hparams(self._task, self._loader, config.parent.hparams)
        return UnitJob(
            unit=unit,
            hparams=task_hparams(self._task, self._loader, config.hparams),
            seed=self._plan.seed_of(config.repeat),
            epochs=self._spec.epochs_of(config.id, unit.epoch),
            visited=config.visited,
            rows=tuple(self._manifest.rows[j] for j in self._plan.trains(config.fold)),
            partition=self.fetch(unit.phase, unit.partition, beat) if partition is None else partition,
            validation=self._validation(config, unit, beat),
            loader=self._loader.with_hparams(config.hparams),
            state=state,
            inherits=inherits,
            device=self.device,
            skip=config.partial_unit.batches if config.partial_unit else 0,
            strategy=strategy,
            loss_weights=self._loss_weights,
            beat=beat,
            stop=stop,
            memory_limit_bytes=memory_limit_bytes,
            # A profile times how batches are made; embedded rows come before, and may be kept.
            made=None if unit.phase is Phase.PROFILE and self._loader.embed is None else self._made,
        )

    def _validation(self, config: Config, unit: Unit, beat: Callable[[], None]) -> list[Partition]:
        """Fetched for the unit that validates. In other units a partition has its size, and is fetched when
        it is read."""
        if unit.phase is Phase.EVALUATE or self._plan.evaluations:
            return []
        last = len(config.visited) + 1 == self._plan.trained
        split = self._split(Phase.EVALUATE)
        files = self._manifest.split(split)
        indices = range(len(files)) if config.fold is None else self._plan.held_out(config.fold)

        def fetch(index: int) -> Partition:
            return self.fetch(Phase.EVALUATE, index, beat)

        return [
            fetch(index)
            if last and unit.phase is Phase.TRAIN
            else unopened(
                index, files[index].rows, f"{split} partition {index} of {self._url}", partial(fetch, index)
            )
            for index in indices
        ]

    def perform(self, job: UnitJob) -> UnitResult:
        """Train or evaluate, as the unit's phase says.

        Raises:
            DamagedData: Data of the job are damaged, even if the user's code has caught the error.
        """
        perform = self._task.evaluate if job.unit.phase is Phase.EVALUATE else self._task.train
        job = replace(job, stays=checkpoint.stays_in(job.state))
        on_device.keep_copies_of(job.stays.values())
        try:
            result = perform(job)
            return replace(result, before={**result.before, **job.stays})
        finally:
            for partition in (job.partition, *job.validation):
                if partition.damage:
                    raise partition.damage[0]

    def measure_test(self, config: Config, state: TaskState) -> tuple[ModelValues, int]:
        """Measure the model of ``state`` on the test set; ``config`` is as it was then. Returns its values,
        and how many rows the test set has.

        Raises:
            TaskError: The task cannot measure, or the model's data module has no test data.
        """
        if not isinstance(self._task, SupportsTest):
            raise TaskError(
                f"a task of kind {self.recipe.task.kind!r} does not say how a model is measured on a test "
                "set: its adapter needs a method `measure_test` (see training/task.py)"
            )
        if self._manifest.test:
            partition = self.cache.fetch(self._url, self._manifest, "test", 0, nothing)
        else:  # a data module has its own rows
            first = partial(self.fetch, Phase.TRAIN, 0, nothing)
            partition = unopened(0, 0, "the data module's test data", first)
        unit = Unit(config.id, config.epoch - 1, 0, Phase.EVALUATE)
        job = self.job(config, unit, state, partition=partition)
        values = self._task.measure_test(job)
        if partition.damage:
            raise partition.damage[0]
        return values, partition.rows or max(map(len, values.rows.values()), default=0)


@functools.cache
def unit_runner_of(spec: str, cache: str, device: str) -> UnitRunner:
    """The unit runner of an encoded spec in this process, which has no other."""
    runner = UnitRunner(decode(spec, Spec), Path(cache), device)
    runner.use_threads()
    return runner


def loader_settings(recipe: Recipe, lengths: Mapping[str, int] | None = None) -> LoaderSettings:
    """How the recipe makes batches; ``TaskError`` if a function that it names cannot be imported. ``lengths``
    are those of its dataset (``dataset_factory``)."""

    def imported(reference: str | None) -> Any:
        return import_object(reference, recipe.root) if reference else None

    data = recipe.data
    keys = {field.name for field in fields(LoaderSettings)} & type(data).model_fields.keys()
    settings = {key: getattr(data, key) for key in keys}
    settings |= {
        "transform": imported(data.transform),
        "collate": imported(data.collate),
        "embed": imported(data.embed),
        "decode": {column: imported(reference) for column, reference in data.decode.items()},
        "augment": {column: imported(reference) for column, reference in data.augment.items()},
        "dataset": dataset_factory(recipe, lengths),
        "arrays": recipe.task.ARRAYS,
    }
    return LoaderSettings(**settings)


_SHOWN = 5
"""The number of classes that an error names."""


def loss_weights(recipe: Recipe, manifest: Manifest) -> LossWeights:
    """The weights from the recipe and the dataset. Raises ``RecipeError`` if they do not fit."""
    named = getattr(recipe.task, "class_weights", None)
    if named is None:
        return LossWeights((), bool(manifest.sample_weight))
    ((column, counts),) = manifest.class_counts.items() or [("", ())]
    if named != "balanced":
        if counts and len(named) != len(counts):
            raise RecipeError(
                f"task.class_weights has {len(named)} weights, and column {column!r} of the training data "
                f"{len(counts)} classes: give one weight for each"
            )
        return LossWeights(tuple(named), bool(manifest.sample_weight))
    if not counts:
        raise RecipeError(
            "task.class_weights is 'balanced', and the dataset does not say how many rows each class has: "
            "prepare it with `--count-classes COLUMN`, or give a list of weights"
        )
    if empty := [number for number, rows in enumerate(counts) if not rows]:
        names = manifest.vocabulary.get(column, range(len(counts)))
        shown = ", ".join(repr(names[number]) for number in empty[:_SHOWN])
        raise RecipeError(
            f"task.class_weights is 'balanced', and the training data have no row of class {shown} in column "
            f"{column!r}: add some, hold out rows by `stratify`, or give a list of weights"
        )
    total = sum(counts)
    return LossWeights(tuple(total / (len(counts) * rows) for rows in counts), bool(manifest.sample_weight))
