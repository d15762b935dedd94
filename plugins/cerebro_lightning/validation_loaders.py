"""The validation loaders of a user's data module in a unit: one rank uses them unchanged, several divide
their batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch.utils.data import DataLoader

from cerebro_elastic.extending.data import (
    Batches,
    DatasetFactory,
    in_worker_processes,
    indivisible,
)
from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.tasks import UnitJob
from cerebro_elastic.extending.torch_tasks import rng
from cerebro_lightning.distributed import DistributedStrategy

_loaders: WeakKeyDictionary[Any, Sequence[Any]] = WeakKeyDictionary()
"""The validation loaders of each data module of this process."""


class ValidationLoader:
    """One of a data module's validation loaders. Each batch is a sign of progress."""

    def __init__(self, job: UnitJob, number: int, loader: Any) -> None:
        self.dataset = getattr(loader, "dataset", None)
        self.batch_size = getattr(loader, "batch_size", None)
        self._job = job
        self._number = number
        self._loader = loader

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        for batch in self._batches():
            self._job.beat()
            yield batch

    def _batches(self) -> Iterator[Any]:
        loader = self._loader
        if self._job.loader.workers and isinstance(loader, DataLoader) and loader.batch_sampler is not None:
            return self._of_rows(self._rows())
        return iter(loader)

    def _rows(self) -> list[Sequence[Any]]:
        """The rows of each batch."""
        torch.empty((), dtype=torch.int64).random_()  # as a DataLoader does for each of its iterators
        return list(self._loader.batch_sampler)

    def _of_rows(self, rows_of_batches: Sequence[Sequence[Any]]) -> Iterator[Any]:
        """The batches of these rows: made by the worker processes for training, if any, and shared with the
        host's other ranks."""
        job = self._job
        factory = job.loader.dataset
        assert factory is not None
        make = partial(_validation_batch, factory, job.seed, self._number)
        if not job.loader.workers:
            yield from map(make, rows_of_batches)
            return
        seed = (job.seed, self._number)
        in_processes = partial(in_worker_processes, make, rows_of_batches.__getitem__, seed, job.loader)
        key = ("validation loader", *seed, job.loader.data_args, list(map(list, rows_of_batches)))
        shared = nullcontext() if job.made is None else job.made.shared(key, len(rows_of_batches))
        with shared as in_use:
            batches = Batches(range(len(rows_of_batches)), in_processes, in_use, job.data_use)
            yield from job.data_use.timed(iter(batches))


class DividedLoader(ValidationLoader):
    """On several ranks: this rank's rows of each batch, as for a training batch. ``strategy`` learns its
    part.

    Raises ``TaskError`` if the loader's batches are not lists of rows.
    """

    def __init__(self, job: UnitJob, number: int, loader: Any, strategy: DistributedStrategy) -> None:
        if why := indivisible(loader):
            raise TaskError(f"the data module's validation loader {number} {why}")
        super().__init__(job, number, loader)
        self._strategy = strategy

    def _batches(self) -> Iterator[Any]:
        # Each rank has drawn an order of its own: the first one's counts.
        batches: list[Sequence[Any]] = self._strategy.broadcast(self._rows())
        mine = [rows[self._strategy.part(len(rows))] for rows in batches]
        for rows, batch in zip(batches, self._of_rows(mine), strict=True):
            self._strategy.now = self._strategy.portion(len(rows))
            yield batch


def _validation_batch(factory: DatasetFactory, seed: int, number: int, rows: Sequence[Any]) -> Any:
    """Runs in a worker process, which has a data module of its own."""
    loader = _loaders_of(factory.make().module, seed)[number]
    several = getattr(loader.dataset, "__getitems__", None)  # as torch's fetcher does
    return loader.collate_fn(several(rows) if several else [loader.dataset[row] for row in rows])


def validation_loaders(
    module: Any, job: UnitJob, strategy: DistributedStrategy | None
) -> list[ValidationLoader] | None:
    """The data module's validation loaders for a unit, on several ranks by ``strategy``; ``None`` if it has
    none."""
    loaders = enumerate(_loaders_of(module, job.seed))
    if strategy is None:
        return [ValidationLoader(job, number, loader) for number, loader in loaders] or None
    return [DividedLoader(job, number, loader, strategy) for number, loader in loaders] or None


def _loaders_of(module: Any, seed: int) -> Sequence[Any]:
    """The loaders that ``val_dataloader`` returns; it is called once in a process."""
    if module not in _loaders:
        with rng.borrowed():
            rng.seed_all(seed)
            returned = module.val_dataloader() if is_overridden("val_dataloader", module) else []
        if isinstance(returned, Mapping):
            returned = list(returned.values())
        loaders = list(returned) if isinstance(returned, list | tuple) else [returned]
        for loader in loaders:
            if isinstance(loader, DataLoader):  # its processes would be forks of this one, with its threads
                loader.num_workers, loader.timeout = 0, 0
        _loaders[module] = loaders
    return _loaders[module]
