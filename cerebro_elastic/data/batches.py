"""Batches: every column indexed with a whole index batch, never row by row."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from cerebro_elastic.data.partition import Partition
from cerebro_elastic.errors import DamagedData, RecipeError, did_you_mean
from cerebro_elastic.torch_internals import stop_workers

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
    """Processes of a ``DataLoader``; 0: batches are made in this process. They are spawned anew for every
    partition, which costs seconds and pays only where ``transform`` or ``collate`` is heavy."""

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise RecipeError(f"batch_size is {self.batch_size}: it must be at least 1")
        if self.workers < 0:
            raise RecipeError(f"workers is {self.workers}: it must be 0 (none) or more")
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


def batch_count(rows: int, batch_size: int) -> int:
    """Batches of a partition; the last one may be short."""
    return -(-rows // batch_size)


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

    They are the same for any number of workers, except that a random ``transform`` draws from the
    global generators of its process: in a worker these are seeded for each batch, by ``seed`` and the
    batch's number. The global generators of this process are not touched here.
    """
    if len(order) and (order.min() < 0 or order.max() >= partition.rows):
        raise IndexError(f"order has rows from {order.min()} to {order.max()} of {partition.rows}")
    maker = _BatchMaker(partition, order, loader, part)
    numbers = range(skip, batch_count(len(order), loader.batch_size))
    if loader.workers and numbers:
        return _noting_damage(partition, _in_workers(maker, numbers, loader.workers, seed))
    return _noting_damage(partition, (maker(number) for number in numbers))


def _noting_damage(partition: Partition, batches_: Generator[Any, None, None]) -> Generator[Any, None, None]:
    """The batches; damage that ends them is noted in the partition."""
    try:
        yield from batches_
    except DamagedData as damage:
        partition.damage.append(damage)
        raise


def _in_workers(maker: _BatchMaker, numbers: range, workers: int, seed: int) -> Generator[Any, None, None]:
    loader: DataLoader[Any] = DataLoader(
        _Seeded(maker, seed),
        batch_size=None,
        sampler=numbers,
        collate_fn=_as_it_is,
        num_workers=min(workers, len(numbers)),
        multiprocessing_context="spawn",
        generator=torch.Generator().manual_seed(seed),  # else it would draw from the global one
    )
    iterator: Any = iter(loader)
    try:
        for batch in iterator:
            if isinstance(batch, DamagedData):
                raise batch
            yield batch
    finally:
        stop_workers(iterator)  # else they live as long as the traceback of an error


def _as_it_is(batch: Any) -> Any:
    return batch


class _BatchMaker:
    """Makes a partition's batches by number."""

    def __init__(
        self, partition: Partition, order: NDArray[np.int64], loader: LoaderSettings, part: BatchPart
    ) -> None:
        self._partition = partition
        self._order = order
        self._loader = loader
        # Asked here, since a worker process could not: full batches, and the last one.
        size = loader.batch_size
        self._parts = {rows: part(rows) for rows in (size, len(order) % size) if rows}

    def __call__(self, number: int) -> Any:
        start = number * self._loader.batch_size
        rows = self._order[start : start + self._loader.batch_size]
        index = rows[self._parts[len(rows)]]
        self._partition.check_sizes()
        tensors = [self._taken(name, index) for name in self._partition.columns]
        if self._loader.collate is None:
            batch = self._arrange(tensors)
        else:
            batch = self._loader.collate([self._arrange(row) for row in zip(*tensors, strict=True)])
        return batch if self._loader.transform is None else self._loader.transform(batch)

    def _taken(self, name: str, index: NDArray[np.int64]) -> torch.Tensor:
        """Rows of a column: copied, and the copy compared; what changes in the file later does not matter."""
        rows = _take(self._partition.columns[name], index)
        self._partition.check_rows(name, index, rows.numpy())
        return rows

    def _arrange(self, tensors: Any) -> Any:
        if self._loader.layout == "dict":
            return dict(zip(self._partition.columns, tensors, strict=True))
        return tensors[0] if len(tensors) == 1 else tuple(tensors)


class _Seeded(Dataset[Any]):
    """A maker in a worker process, where a batch draws the same wherever the unit began."""

    def __init__(self, maker: _BatchMaker, seed: int) -> None:
        self._maker = maker
        self._seed = seed

    def __getitem__(self, number: int) -> Any:
        seed = int(np.random.SeedSequence((self._seed, number)).generate_state(1)[0])
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        try:
            return self._maker(number)
        except DamagedData as damage:  # raised, it would come as the text of a traceback
            return damage


def _take(column: NDArray[Any], index: NDArray[np.int64]) -> torch.Tensor:
    """``column[index]`` in memory that torch allocated: numpy's alignment differs from run to run,
    and with it the last bits of some matrix products."""
    dtype = torch.from_numpy(np.empty(0, column.dtype)).dtype
    rows = torch.empty((len(index), *column.shape[1:]), dtype=dtype)
    np.asarray(column).take(
        index, axis=0, out=rows.numpy(), mode="clip"
    )  # "raise" would buffer; checked above
    return rows
