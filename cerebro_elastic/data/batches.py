"""Batches: every column indexed with a whole index batch, never row by row; a user's dataset row by row."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic import arguments
from cerebro_elastic.data.batch_arrays import Arrays, batch_arrays, decoded_arrays, stacked_arrays
from cerebro_elastic.data.bucketing import bucketed
from cerebro_elastic.data.column_batches import (
    Decode,
    check_kinds,
    check_pad_values,
    decoded_rows,
    encoded_rows,
    equal_rows,
    padded_rows,
    single_rows,
)
from cerebro_elastic.data.dataset_factory import ROW, DatasetFactory
from cerebro_elastic.data.manifest import Column
from cerebro_elastic.data.partition import Partition, sample_order
from cerebro_elastic.data.ragged import Index, Ragged
from cerebro_elastic.errors import DamagedData, RecipeError, did_you_mean

if TYPE_CHECKING:
    from cerebro_elastic.data.batch_workers import WorkerSettings

LAYOUTS = ("tuple", "dict")
RAGGED = ("pad", "list")
LENGTHS = "_lengths"
"""Behind a column's name: the lengths of its rows."""

_BUCKETS = 1
"""In a seed: for the order of batches, besides that of rows."""


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
    transform: Callable[..., Any] | None = None
    """Maps a batch to what the task gets."""
    collate: Callable[..., Any] | None = None
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
    ragged: str = "pad"
    """What a column of sequences of varying length is: ``pad``: a tensor, padded to the longest row of the
    batch (on all ranks alike), followed by the rows' lengths (``dict``: ``name_lengths``); ``list``: a list
    of tensors, without lengths. With ``collate``, each row has its sequence."""
    pad_value: Mapping[str, float] = field(default_factory=dict)
    """By column, what sequences are padded with; else 0."""
    decode: Mapping[str, Decode] = field(default_factory=dict)
    """By column of encoded values, what opens one: its arrays are stacked, or with ``ragged: list`` a list.
    Without it the batch has a list of ``bytes``."""
    bucket: str | None = None
    """The column of varying lengths, or of a dataset's lengths, by which rows of similar length come into one
    batch in training."""
    arrays: Arrays = "torch"
    """What columns are in a batch: tensors of torch, or numpy's arrays."""

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise RecipeError(f"batch_size is {self.batch_size}: it must be at least 1")
        if self.workers < 0:
            raise RecipeError(f"workers is {self.workers}: it must be 0 (none) or more")
        if self.prefetch < 1:
            raise RecipeError(f"prefetch is {self.prefetch}: it must be at least 1")
        if self.layout not in LAYOUTS:
            raise RecipeError(f"layout is {self.layout!r}: {did_you_mean(self.layout, LAYOUTS)}")
        if self.ragged not in RAGGED:
            raise RecipeError(f"ragged is {self.ragged!r}: {did_you_mean(self.ragged, RAGGED)}")
        if self.bucket is not None and not self.shuffle:
            raise RecipeError("bucket shuffles the batches: leave it out, or set shuffle: true")
        if self.workers:
            self._check_sendable()

    def _check_sendable(self) -> None:
        functions = [("transform", self.transform), ("collate", self.collate)]
        for name, function in (*functions, *((f"decode of {n}", f) for n, f in self.decode.items())):
            try:
                pickle.dumps(function)
            except (pickle.PicklingError, AttributeError, TypeError) as exc:
                raise RecipeError(
                    f"{name} cannot be sent to worker processes ({exc}): define it at the top level of a "
                    "module that can be imported, or set workers: 0"
                ) from exc

    def of_phase(self, *, training: bool) -> LoaderSettings:
        """The settings for training or for evaluation: a function with a parameter ``training`` gets that."""
        return replace(
            self,
            transform=self.transform and _informed(self.transform, training),
            collate=self.collate and _informed(self.collate, training),
            decode={name: _informed(function, training) for name, function in self.decode.items()},
        )

    def check(self, columns: Iterable[Column]) -> None:
        """Raise ``RecipeError`` if a dataset of these columns cannot be read so."""
        known = {column.name: column for column in columns}
        check_kinds("pad_value", self.pad_value, known, ["ragged"])
        check_kinds("decode", self.decode, known, ["bytes"])
        if self.bucket and self.dataset is None:
            check_kinds("bucket", [self.bucket], known, ["ragged", "bytes"])
        check_pad_values(self.pad_value, known)
        lengths = [name + LENGTHS for name, column in known.items() if column.kind == "ragged"]
        taken = [name for name in lengths if name in known]
        if taken and self.layout == "dict" and self.ragged == "pad":
            raise RecipeError(
                f"the batch would have the lengths {taken[0]!r}, which is a column, too: use layout: tuple, "
                "or rename the column"
            )


def _informed(function: Callable[..., Any], training: bool) -> Callable[..., Any]:
    try:
        names = arguments.accepted(function) or ()
    except ValueError:  # a function in C without a signature
        return function
    return partial(function, training=training) if "training" in names else function


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
    partition: Partition, rows_of_batches: Iterable[BatchRows], loader: LoaderSettings
) -> Generator[Any, None, None]:
    for rows in rows_of_batches:
        batch = make_batch(partition, rows, loader)
        yield _pinned(batch) if loader.pin_memory else batch


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
    partition.check_sizes()
    if loader.dataset is not None:
        datasets = loader.dataset.make()
        numbers = equal_rows(partition, ROW, rows.index).tolist()
        batch = (loader.collate or datasets.collate)(datasets.rows(numbers))
    elif loader.collate is not None:
        columns = {name: _single_values(partition, name, rows.index, loader) for name in partition.columns}
        values = zip(*columns.values(), strict=True)
        batch = loader.collate([_arranged(dict(zip(columns, row, strict=True)), loader) for row in values])
    else:
        batch = _arranged(dict(_columns(partition, rows, loader)), loader)
    return batch if loader.transform is None else loader.transform(batch)


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
