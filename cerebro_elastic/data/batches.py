"""Batches: every column indexed with a whole index batch, never row by row; a user's dataset row by row."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from cerebro_elastic.data.batch_workers import SeededTask, WorkerSettings, in_workers
from cerebro_elastic.data.dataset_factory import DatasetFactory
from cerebro_elastic.data.datasets import ROW
from cerebro_elastic.data.partition import Partition
from cerebro_elastic.errors import DamagedData, RecipeError, did_you_mean
from cerebro_elastic.torch_internals import pinned

LAYOUTS = ("tuple", "dict")

BatchPart: TypeAlias = Callable[[int], slice]
"""Of a batch with so many rows, those to take."""


@dataclass(frozen=True)
class LoaderSettings:
    """How batches are made. Raises ``RecipeError`` for values out of range."""

    batch_size: int
    """Rows of a batch; a partition's last one may be shorter."""
    layout: str = "tuple"
    """``tuple``: the columns in the manifest's order (a lone column's tensor as it is); ``dict``: by column
    name."""
    shuffle: bool = True
    """Whether each epoch takes the rows of a training partition in another order."""
    transform: Callable[[Any], Any] | None = None
    """Maps a batch to what the task gets."""
    collate: Callable[[list[Any]], Any] | None = None
    """Makes a batch from a list of rows in the ``layout``. Slow: for users who have such a function."""
    workers: int = 0
    """Processes that make batches; 0: they are made in this process. They start once for all units of a
    rank, which takes seconds, and pay where ``dataset``, ``transform`` or ``collate`` is heavy."""
    dataset: DatasetFactory | None = None
    """Makes the dataset whose rows the partitions name by number; ``None``: the partitions hold the rows."""
    prefetch: int = 2
    """Batches that each of the ``workers`` makes ahead."""
    pin_memory: bool = False
    """Whether batches come in page-locked memory, from where a GPU takes them faster."""
    drop_last: bool = False
    """Whether a training partition's short last batch is left out."""

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise RecipeError(f"batch_size is {self.batch_size}: it must be at least 1")
        if self.workers < 0:
            raise RecipeError(f"workers is {self.workers}: it must be 0 (none) or more")
        if self.prefetch < 1:
            raise RecipeError(f"prefetch is {self.prefetch}: it must be at least 1")
        if self.layout not in LAYOUTS:
            raise RecipeError(f"layout is {self.layout!r}: {did_you_mean(self.layout, LAYOUTS)}")
        if self.workers:
            self._check_sendable()

    def _check_sendable(self) -> None:
        for name, function in (("transform", self.transform), ("collate", self.collate)):
            try:
                pickle.dumps(function)
            except (pickle.PicklingError, AttributeError, TypeError) as exc:
                raise RecipeError(
                    f"{name} cannot be sent to worker processes ({exc}): define it at the top level of a "
                    "module that can be imported, or set workers: 0"
                ) from exc


def batch_count(rows: int, batch_size: int, drop_last: bool = False) -> int:
    """Batches of a partition; the last one may be short, or is left out (``drop_last``)."""
    return rows // batch_size if drop_last else -(-rows // batch_size)


def whole(rows: int) -> slice:
    """The ``BatchPart`` that is all of a batch."""
    return slice(0, rows)


def batches(
    partition: Partition,
    order: NDArray[np.int64],
    loader: LoaderSettings,
    *,
    seed: int = 0,
    skip: int = 0,
    part: BatchPart = whole,
) -> Generator[Any, None, None]:
    """The partition's batches, its rows taken in ``order``, without the first ``skip``: those are not made.
    Of each, ``part`` is made.

    They are the same for any number of workers, except that what draws at random (a ``transform``, a
    dataset) draws from the global generators of its process: in a worker these are seeded for each batch, by
    ``seed`` and the batch's number. The global generators of this process are not touched here.
    """
    if len(order) and (order.min() < 0 or order.max() >= partition.rows):
        raise IndexError(f"order has rows from {order.min()} to {order.max()} of {partition.rows}")
    size = loader.batch_size
    # Asked here, since a worker process could not: full batches, and the last one.
    parts = {rows: part(rows) for rows in (size, len(order) % size) if rows}
    numbers = range(skip, batch_count(len(order), size))

    def index_of(number: int) -> NDArray[np.int64]:
        rows = order[number * size : (number + 1) * size]
        return rows[parts[len(rows)]]

    if loader.workers and numbers:
        tasks = (
            SeededTask(partial(make_batch, partition, index_of(number), loader), (seed, number))
            for number in numbers
        )
        return _noting_damage(partition, in_workers(tasks, len(numbers), worker_settings(loader)))
    return _noting_damage(partition, _made_here(partition, map(index_of, numbers), loader))


def worker_settings(loader: LoaderSettings) -> WorkerSettings:
    """The processes that serve a loader with ``workers``."""
    return WorkerSettings(loader.workers, loader.prefetch, loader.pin_memory)


def _noting_damage(partition: Partition, batches_: Generator[Any, None, None]) -> Generator[Any, None, None]:
    """The batches; damage that ends them is noted in the partition."""
    try:
        yield from batches_
    except DamagedData as damage:
        partition.damage.append(damage)
        raise


def _made_here(
    partition: Partition, indexes: Iterable[NDArray[np.int64]], loader: LoaderSettings
) -> Generator[Any, None, None]:
    for index in indexes:
        batch = make_batch(partition, index, loader)
        yield pinned(batch) if loader.pin_memory else batch


def make_batch(partition: Partition, index: NDArray[np.int64], loader: LoaderSettings) -> Any:
    """The batch of the rows at ``index``: of the partition, or of the dataset whose rows it names."""
    partition.check_sizes()
    columns = {name: _taken(partition, name, index) for name in partition.columns}
    if loader.dataset is not None:
        datasets = loader.dataset.make()
        batch = (loader.collate or datasets.collate)(datasets.rows(columns[ROW].tolist()))
    elif loader.collate is not None:
        rows = [_arranged(columns, row, loader) for row in zip(*columns.values(), strict=True)]
        batch = loader.collate(rows)
    else:
        batch = _arranged(columns, tuple(columns.values()), loader)
    return batch if loader.transform is None else loader.transform(batch)


def _taken(partition: Partition, name: str, index: NDArray[np.int64]) -> torch.Tensor:
    """Rows of a column: copied, and the copy compared; what changes in the file later does not matter."""
    rows = _take(partition.columns[name], index)
    partition.check_rows(name, index, rows.numpy())
    return rows


def _arranged(names: Iterable[str], tensors: tuple[torch.Tensor, ...], loader: LoaderSettings) -> Any:
    """A batch or a row in the loader's layout."""
    if loader.layout == "dict":
        return dict(zip(names, tensors, strict=True))
    return tensors[0] if len(tensors) == 1 else tensors


def _take(column: NDArray[Any], index: NDArray[np.int64]) -> torch.Tensor:
    """``column[index]`` in memory that torch allocated: numpy's alignment differs from run to run,
    and with it the last bits of some matrix products."""
    dtype = torch.from_numpy(np.empty(0, column.dtype)).dtype
    rows = torch.empty((len(index), *column.shape[1:]), dtype=dtype)
    np.asarray(column).take(
        index, axis=0, out=rows.numpy(), mode="clip"
    )  # "raise" would buffer; checked above
    return rows
