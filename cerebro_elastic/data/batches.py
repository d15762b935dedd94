"""Batches: every column indexed with a whole index batch, never row by row; a user's dataset row by row."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.batch_arrays import batch_arrays, decoded_arrays, stacked_arrays
from cerebro_elastic.data.bucketing import bucketed
from cerebro_elastic.data.column_batches import (
    decoded_rows,
    encoded_rows,
    equal_rows,
    padded_rows,
    single_rows,
)
from cerebro_elastic.data.dataset_factory import ROW
from cerebro_elastic.data.loader_settings import LENGTHS, LoaderSettings
from cerebro_elastic.data.partition import Partition, in_file, sample_order
from cerebro_elastic.data.ragged import Index, Ragged
from cerebro_elastic.errors import DamagedData

if TYPE_CHECKING:
    from cerebro_elastic.data.batch_workers import WorkerSettings

_BUCKETS = 1
"""In a seed: for the order of batches, besides that of rows."""
_AT_ONCE, _AT_ONCE_BYTES = 8, 1 << 19
"""So many batches, of so many bytes at most, are made one right after the other. While a batch is trained the
code that makes batches leaves the processor's caches; to load it again for each small batch costs time."""


BatchPart: TypeAlias = Callable[[int], slice]
"""Of a batch with so many rows, those to take."""


def training_order(partition: Partition, loader: LoaderSettings, seed: int, epoch: int) -> NDArray[np.int64]:
    """The order in which ``epoch``'s training pass takes the partition's rows: a function of the arguments
    alone."""
    order = sample_order(seed, epoch, partition.index, partition.rows, loader.shuffle)
    if loader.bucket is None:
        return order
    column = partition.columns[loader.bucket]
    lengths = column.lengths if isinstance(column, Ragged) else np.asarray(column, np.int64)
    return bucketed(order, lengths, loader.batch_size, (seed, epoch, partition.index, _BUCKETS))


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

    def rows_of(number: int) -> BatchRows:
        rows = order[number * size : (number + 1) * size]
        return BatchRows(rows[parts[len(rows)]], rows)

    if loader.workers and numbers:
        from cerebro_elastic.data.batch_workers import SeededTask, SentOnce, in_workers

        make = SentOnce(partial(make_batch, partition, loader=loader))
        tasks = (SeededTask(partial(make, rows_of(number)), (seed, number)) for number in numbers)
        return _noting_damage(partition, in_workers(tasks, len(numbers), worker_settings(loader)))
    return _noting_damage(partition, _made_here(partition, map(rows_of, numbers), loader))


def worker_settings(loader: LoaderSettings) -> WorkerSettings:
    """The processes that serve a loader with ``workers`` (imports torch)."""
    from cerebro_elastic.data.batch_workers import WorkerSettings

    return WorkerSettings(loader.workers, loader.prefetch, loader.pin_memory)


def _noting_damage(partition: Partition, batches_: Generator[Any, None, None]) -> Generator[Any, None, None]:
    """The batches; damage that ends them is noted in the partition."""
    try:
        yield from batches_
    except DamagedData as damage:
        partition.damage.append(damage)
        raise


def _made_here(
    partition: Partition, rows_of_batches: Iterator[BatchRows], loader: LoaderSettings
) -> Generator[Any, None, None]:
    at_once = _at_once(partition, loader)
    while together := [_taken(partition, rows, loader) for rows in islice(rows_of_batches, at_once)]:
        for batch in together:
            made = batch if loader.transform is None else loader.transform(batch)
            yield _pinned(made) if loader.pin_memory else made


def _at_once(partition: Partition, loader: LoaderSettings) -> int:
    """How many batches are made one right after the other. Only one if the user's code takes part in it: that
    code may draw from the generators that training draws from."""
    if loader.dataset is not None or loader.collate is not None or loader.decode:
        return 1
    stored = sum(in_file(column).nbytes for column in partition.columns.values())
    batch_bytes = max(1, stored // max(1, partition.rows) * loader.batch_size)
    return max(1, min(_AT_ONCE, _AT_ONCE_BYTES // batch_bytes))


def _pinned(batch: Any) -> Any:
    from cerebro_elastic.torch_internals import pinned

    return pinned(batch)


@dataclass(frozen=True, slots=True)
class BatchRows:
    """Which rows of a partition are made into a batch."""

    index: Index
    """The rows that are taken here."""
    batch: Index
    """The rows that all ranks take together: sequences are padded to the longest of these."""


def make_batch(partition: Partition, rows: BatchRows, loader: LoaderSettings) -> Any:
    """The batch of ``rows``: of the partition, or of the dataset whose rows it names."""
    taken = _taken(partition, rows, loader)
    return taken if loader.transform is None else loader.transform(taken)


def _taken(partition: Partition, rows: BatchRows, loader: LoaderSettings) -> Any:
    """The batch before its ``transform``."""
    partition.check_sizes()
    if loader.dataset is not None:
        datasets = loader.dataset.make()
        numbers = equal_rows(partition, ROW, rows.index).tolist()
        return (loader.collate or datasets.collate)(datasets.rows(numbers))
    if loader.collate is not None:
        columns = {name: _single_values(partition, name, rows.index, loader) for name in partition.columns}
        values = zip(*columns.values(), strict=True)
        return loader.collate([_arranged(dict(zip(columns, row, strict=True)), loader) for row in values])
    return _arranged(dict(_columns(partition, rows, loader)), loader)


def _columns(partition: Partition, rows: BatchRows, loader: LoaderSettings) -> Iterator[tuple[str, Any]]:
    """What the batch has of each column."""
    arrays = batch_arrays(loader.arrays)
    for name, column in partition.columns.items():
        if not isinstance(column, Ragged):
            yield name, arrays.of(equal_rows(partition, name, rows.index))
        elif column.kind == "ragged" and loader.ragged == "pad":
            width = int(column.lengths[rows.batch].max())
            padded = padded_rows(partition, name, rows.index, width, loader.pad_value.get(name, 0))
            yield name, arrays.of(padded)
            yield name + LENGTHS, arrays.of(column.lengths[rows.index])
        elif name in loader.decode:
            values = decoded_rows(partition, name, rows.index, loader.decode[name])
            decoded = decoded_arrays(arrays, values, name)
            yield name, decoded if loader.ragged == "list" else stacked_arrays(arrays, decoded, name)
        else:
            yield name, list(_single_values(partition, name, rows.index, loader))


def _single_values(partition: Partition, name: str, index: Index, loader: LoaderSettings) -> Sequence[Any]:
    """A column's rows, each for itself."""
    column, arrays = partition.columns[name], batch_arrays(loader.arrays)
    if not isinstance(column, Ragged):
        rows: Sequence[Any] = arrays.of(equal_rows(partition, name, index))
        return rows
    if column.kind == "ragged":
        return list(map(arrays.of, single_rows(partition, name, index)))
    if name in loader.decode:
        return decoded_rows(partition, name, index, loader.decode[name])
    return encoded_rows(partition, name, index)


def _arranged(columns: dict[str, Any], loader: LoaderSettings) -> Any:
    """A batch or a row in the loader's layout."""
    if loader.layout == "dict":
        return columns
    return next(iter(columns.values())) if len(columns) == 1 else tuple(columns.values())
