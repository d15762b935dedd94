"""The loaders of a unit, as Lightning takes them, and the user's ``LightningDataModule`` behind them.

A data module is set up once in a process, so a unit gets a shallow copy that is not set up again, attached
to the trainer for its hooks. Its validation loaders serve one rank unchanged; several ranks divide their
batches.
"""

from __future__ import annotations

import copy
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import count, islice
from types import MappingProxyType
from typing import Any, NoReturn, cast
from weakref import WeakKeyDictionary

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.utilities import CombinedLoader
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch.utils.data import DataLoader, Dataset

from cerebro_elastic.extending.data import (
    Batches,
    DatasetFactory,
    ForeignGenerators,
    LoaderSettings,
    Partition,
    Split,
    in_worker_processes,
    indivisible,
    seed_of_batch,
)
from cerebro_elastic.extending.errors import NoTestSet, TaskError
from cerebro_elastic.extending.state import rng, values_equal
from cerebro_elastic.extending.tasks import (
    BatchPart,
    Phase,
    UnitJob,
    job_batches,
    object_digest,
    row_by_row,
    whole,
)
from cerebro_lightning.distributed import DistributedStrategy
from cerebro_lightning.optimizers import NamedStateStrategy


def data_module(job: UnitJob) -> Any:
    """The data module whose rows the job trains on; ``None`` if they come from elsewhere."""
    return job.loader.dataset.make().module if job.loader.dataset is not None else None


_PLAIN = (bool, int, float, str, bytes, type(None))
_GENERATORS = (random.Random, np.random.Generator, np.random.RandomState, torch.Generator)
_MOST_ITEMS = 5000
"""Containers with more items are taken for rows, and not searched."""


@contextmanager
def attached(module: Any, training: Any, validation: Any) -> Iterator[dict[str, Any]]:
    """The arguments of ``Trainer.fit`` for the loaders of a unit, and for the data ``module`` behind them.

    Raises ``TaskError`` if the unit has changed the data module, where the next unit would not see it.
    """
    if module is None or isinstance(module, pl.LightningModule):
        yield {"train_dataloaders": training, "val_dataloaders": validation}
        return
    present = copy.copy(module)
    vars(present).update(
        dict.fromkeys(("prepare_data", "setup", "teardown"), _nothing), train_dataloader=lambda: training
    )
    if validation is not None:
        vars(present).update(dict.fromkeys(("val_dataloader", "test_dataloader"), lambda: validation))
    before = dict(vars(present))
    inside = {name: _inside(value) for name, value in before.items()}
    yield {"datamodule": present}
    own = {
        name: value for name, value in vars(present).items() if not name.startswith("_") and name != "trainer"
    }
    changed = [
        name
        for name, value in own.items()
        if not values_equal(before.get(name, _nothing), value) or _inside(value) != inside.get(name)
    ]
    if changed and not is_overridden("state_dict", module):
        raise TaskError(
            f"{type(module).__name__} changed its {', '.join(changed)} while it trained, and the next unit "
            "may run on another node: carry it in its state_dict and load_state_dict, or do not change it"
        )


def _nothing(stage: str | None = None) -> None:
    """Replaces a hook that has already run, when the data module was set up."""


def _inside(value: Any) -> Any:
    """The contents of a container, or the state of a random generator. Other objects, such as datasets, are
    not searched: their caches change no row."""
    if isinstance(value, _GENERATORS):
        return object_digest(value)
    return _copied(value, iter(range(_MOST_ITEMS)))


def _copied(value: Any, left: Iterator[int]) -> Any:
    if isinstance(value, Mapping):
        return [
            (_copied(key, left), _copied(item, left))
            for (key, item), _ in zip(value.items(), left, strict=False)
        ]
    if isinstance(value, list | tuple | deque | set | frozenset):
        return [_copied(item, left) for item, _ in zip(value, left, strict=False)]
    return value if isinstance(value, _PLAIN) else id(value)


_loaders: WeakKeyDictionary[Any, tuple[bool, CombinedLoader]] = WeakKeyDictionary()
"""The validation loaders of each data module of this process, and whether it combines them itself."""


def _like(loader: Any, batches: Callable[[], Iterator[Any]]) -> Any:
    """The user's loader, with her dataset, sampler and all else, but it yields ``batches``."""
    if not isinstance(loader, DataLoader):
        return _Wrapped(loader, batches)
    present, kind = copy.copy(loader), cast(type, type(loader))
    present.__class__ = _yielding(kind)
    vars(present)[_BATCHES] = batches
    return present


_BATCHES = "_batches_of_unit"


@cache
def _yielding(kind: type) -> type:
    return type(kind.__name__, (kind,), {"__iter__": lambda self: vars(self)[_BATCHES]()})


class _Wrapped:
    """An iterable that is no ``DataLoader``; its other attributes are the user's."""

    def __init__(self, loader: Any, batches: Callable[[], Iterator[Any]]) -> None:
        self._loader, self._batches = loader, batches

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        return self._batches()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


@dataclass(frozen=True)
class _Validation:
    """A pass over one of a data module's validation loaders. Each batch is a sign of progress.

    On several ranks: this rank's rows of each batch, as for a training batch; the strategy learns its part.
    Raises ``TaskError`` if the loader's batches are not lists of rows.
    """

    job: UnitJob
    number: int
    loader: Any
    several: DistributedStrategy | None

    def __post_init__(self) -> None:
        if self.several is not None and (why := indivisible(self.loader)):
            raise TaskError(f"the data module's validation loader {self.number} {why}")

    def batches(self) -> Iterator[Any]:
        for batch in self._batches():
            self.job.beat()
            yield batch

    def _batches(self) -> Iterator[Any]:
        loader = self.loader
        if self.several is not None:
            return self._divided(self.several)
        if self.job.loader.workers and isinstance(loader, DataLoader) and loader.batch_sampler is not None:
            return self._of_rows(self._rows())
        return self._seeded(iter(loader))

    def _seeded(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The batches, made in this process. Generators that the user's objects carry begin with each."""
        generators = _generators_of(self.loader)
        for number in count():
            with generators.seeded(seed_of_batch(self._seed, number)):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    @property
    def _seed(self) -> tuple[int]:
        return (job_batches.validation_seed(self.job, self.number),)

    def _divided(self, several: DistributedStrategy) -> Iterator[Any]:
        # Each rank has drawn its own order: the first one's counts.
        batches: list[Sequence[Any]] = several.broadcast(self._rows())
        mine = [rows[several.part(len(rows))] for rows in batches]
        for rows, batch in zip(batches, self._of_rows(mine), strict=True):
            several.now = several.portion(len(rows))
            yield batch

    def _rows(self) -> list[Sequence[Any]]:
        """The rows of each batch."""
        torch.empty((), dtype=torch.int64).random_()  # as a DataLoader does for each of its iterators
        return list(self.loader.batch_sampler)

    def _of_rows(self, rows_of_batches: Sequence[Sequence[Any]]) -> Iterator[Any]:
        """The batches of these rows: made by the worker processes for training, if any, and shared with the
        host's other ranks."""
        job = self.job
        factory = job.loader.dataset
        assert factory is not None
        make = partial(_validation_batch, factory, job.seed, self.number)
        if not job.loader.workers:
            yield from self._seeded(map(make, rows_of_batches))
            return
        in_processes = partial(
            in_worker_processes,
            make,
            rows_of_batches.__getitem__,
            self._seed,
            job.loader,
            partial(_generators, factory, job.seed, self.number),
        )
        key = ("validation loader", self.number, job.loader.data_args, list(map(list, rows_of_batches)))
        size = len(rows_of_batches)
        shared = nullcontext() if job.made is None else job.made.shared(key, size, job.unit.epoch)
        with shared as in_use:
            batches = Batches(range(len(rows_of_batches)), in_processes, in_use, job.data_use)
            yield from job.data_use.timed(iter(batches))


def _validation_batch(factory: DatasetFactory, seed: int, number: int, rows: Sequence[Any]) -> Any:
    """Runs in a worker process, which has its own data module."""
    loader = _loaders_of(factory.make().module, seed, "cpu")[1].flattened[number]
    several = getattr(loader.dataset, "__getitems__", None)  # as torch's fetcher does
    return loader.collate_fn(several(rows) if several else [loader.dataset[row] for row in rows])


def _generators(factory: DatasetFactory, seed: int, number: int) -> ForeignGenerators:
    """Runs in a worker process: the generators of its validation loader ``number``."""
    return _generators_of(_loaders_of(factory.make().module, seed, "cpu")[1].flattened[number])


def _generators_of(loader: Any) -> ForeignGenerators:
    if not isinstance(loader, DataLoader):
        return ForeignGenerators({"the validation loader": loader})
    return ForeignGenerators({"dataset": loader.dataset, "collate_fn": loader.collate_fn})


def _loaders_of(module: Any, seed: int, device: str) -> tuple[bool, CombinedLoader]:
    """The loaders that ``val_dataloader`` returns, and whether it combines them itself. It is called once in
    a process."""
    if module not in _loaders:
        with rng.borrowed(torch.device(device)):
            rng.seed_all(seed)
            returned = module.val_dataloader()
        combined = isinstance(returned, CombinedLoader)
        loaders = returned if combined else CombinedLoader(returned, "sequential")
        for loader in loaders.flattened:
            if isinstance(loader, DataLoader):  # its processes would be forks of this one, with its threads
                loader.num_workers, loader.timeout = 0, 0
        _loaders[module] = combined, loaders
    return _loaders[module]


def loader_of_rows(job: UnitJob) -> EpochLoader:
    """The rows of the job's partition in their natural order."""
    batches = partial(job_batches.natural_batches, job, [job.partition])
    return validation_loader(job, [job.partition], batches)


def validation_loader(
    job: UnitJob, partitions: Sequence[Partition], batches: Callable[[], Iterator[Any]]
) -> EpochLoader:
    """The ``batches`` of ``partitions`` as a loader."""
    rows = Rows(sum(part.rows for part in partitions), partial(job_batches.validation_row, job, partitions))
    count = job_batches.validation_batches(job, partitions)
    settings = job_batches.validation_settings(job)
    return EpochLoader(
        count, batches, _users(settings, "valid", rows), _taken(replace(settings, shuffle=False))
    )


def _users(settings: LoaderSettings, split: Split, rows: Rows) -> Dataset[Any]:
    """The user's dataset, if these are its rows."""
    made = settings.dataset.make() if settings.dataset is not None else None
    same = made is not None and made.lengths.get(split) == len(rows)
    return made.by_split[split] if made is not None and same else rows


def _taken(settings: LoaderSettings) -> dict[str, Any]:
    """How a ``DataLoader`` would take the rows."""
    factory = settings.dataset
    collate = settings.collate or (factory.make().collate if factory is not None else None)
    return {"batch_size": settings.batch_size, "shuffle": settings.shuffle, "collate_fn": collate}


def loaders_of_test_set(job: UnitJob, *, single: bool = False) -> Any:
    """The loader of the test set, or those that the data module's ``test_dataloader`` returns. If ``single``,
    its batches have one row each; ``None`` if that is impossible.

    Raises ``NoTestSet`` if the data module has none.
    """
    module = data_module(job)
    if module is None:
        return loader_of_rows(row_by_row(job) if single else job)
    if not is_overridden("test_dataloader", module):
        raise NoTestSet(
            f"{type(module).__name__} has no test_dataloader, and so no test set: define one, and "
            "start a new run"
        )
    module.setup("test")
    with rng.borrowed(torch.device(job.device)):
        rng.seed_all(job.seed)
        loader = module.test_dataloader()
    if not single:
        return loader
    if not isinstance(loader, DataLoader) or indivisible(loader):
        return None
    return DataLoader(loader.dataset, batch_size=1, collate_fn=loader.collate_fn)


class Rows(Dataset[Any]):
    """The rows behind a loader that are no dataset of the user's."""

    def __init__(self, rows: int, row: Callable[[int], Any]) -> None:
        """``row`` returns one of the ``rows``, by its number."""
        self._rows, self._row = rows, row

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, number: int) -> Any:
        if not 0 <= number < self._rows:
            raise IndexError(f"row {number} of {self._rows}")
        return self._row(number)


class EpochLoader(DataLoader[Any]):
    """As long as a whole epoch; yields a part of it."""

    def __init__(
        self,
        length: int,
        batches: Callable[[], Iterator[Any]],
        dataset: Dataset[Any] | None = None,
        taken: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """``dataset`` has the rows of the whole epoch, which the user's loader would take by the arguments
        ``taken``."""
        super().__init__(dataset or Rows(1, _not_here), **taken)
        self._length = length
        self._batches = batches

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Any:
        return self._batches()


def _not_here(number: int | None = None) -> NoReturn:
    del number
    raise TaskError(
        "the module or a callback walks through the training batches itself (trainer.train_dataloader), but "
        "a unit has those of one partition, not of the epoch: add up the values in training_step, or "
        "compute it before the run and give it in task.args"
    )


class UnitLoader(EpochLoader):
    """Yields the unit's part of the epoch, to the training loop alone."""

    _open = False

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Inside, the training loop takes its iterator."""
        self._open = True
        try:
            yield
        finally:
            self._open = False

    def __iter__(self) -> Any:
        return super().__iter__() if self._open else _not_here()


class UnitLoaders:
    """The loaders of ``job``; with several ranks, this rank's share of each batch; ``strategy`` learns its
    size."""

    def __init__(self, job: UnitJob, strategy: NamedStateStrategy) -> None:
        self._job = job
        self._several = strategy if isinstance(strategy, DistributedStrategy) else None

    def training(self) -> UnitLoader:
        """As long as the epoch. A profile ends before it."""
        job = self._job
        length = job_batches.epoch_batches(job) + (job.unit.phase is Phase.PROFILE)
        settings, rows = job_batches.loader_settings(job), Rows(sum(job.rows), _not_here)
        return UnitLoader(length, self._training, _users(settings, "train", rows), _taken(settings))

    def validation(self, module: pl.LightningModule) -> Any:
        """The data module's own loaders as it returns them, or one of all validation partitions in their
        natural order; none if the module does not validate. Units in the middle of an epoch have them, too,
        for code that reads their length; they read no batch."""
        job = self._job
        if not is_overridden("validation_step", module):
            return None
        if (of_module := data_module(job)) is not None:
            if not is_overridden("val_dataloader", of_module):
                return None
            combined, loaders = _loaders_of(of_module, job.seed, job.device)
            present = copy.copy(loaders)
            present.flattened = [
                _like(loader, _Validation(job, number, loader, self._several).batches)
                for number, loader in enumerate(loaders.flattened)
            ]
            return present if combined else present.iterables
        return validation_loader(job, job.validation, self._validation) if job.validation else None

    def _training(self) -> Iterator[Any]:
        job = self._job
        rows = islice(job_batches.training_rows(job), job.skip, None)
        return self._weighed(partial(job_batches.training_batches, job), rows)

    def _validation(self) -> Iterator[Any]:
        job = self._job
        batches = partial(job_batches.natural_batches, job, job.validation)
        return self._weighed(batches, job_batches.validation_rows(job, job.validation))

    def _weighed(self, batches: Callable[[BatchPart], Iterator[Any]], rows: Iterable[int]) -> Iterator[Any]:
        several = self._several
        if several is None:
            yield from batches(whole)
            return
        counts = iter(rows)
        for batch in batches(several.part):
            several.now = several.portion(next(counts))
            yield batch
