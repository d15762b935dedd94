"""The batches of the ordinary fit with which units are compared: those of the user's own loader.

Only the order of rows is the run's. Each batch is made when it is taken, in the process of the fit: by
torch's ``DataLoader`` over the user's dataset, or from columns row by row. Nothing is kept or shared, and
only the seeds come from the code under test, which makes the batches of units.

Each batch sets generators to the seed of its pass and number: those in the user's objects and, if units make
batches in workers, the three global ones. After the batch they continue from their former states.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import nullcontext
from operator import itemgetter
from typing import Any

import numpy as np

from cerebro_elastic.data.manifest import ROW, SPLITS
from cerebro_elastic.data.ragged import Index, Ragged
from cerebro_elastic.data.reading.embedding import CHUNK, embedded_chunk, leafwise, stacked
from cerebro_elastic.data.reading.loader_settings import LENGTHS, LoaderSettings
from cerebro_elastic.data.reading.partition import Partition
from cerebro_elastic.data.user_state import ForeignGenerators, seed_of_batch
from cerebro_elastic.generators import seeded


def own_batches(
    partition: Partition,
    order: Index,
    loader: LoaderSettings,
    *,
    seed: int = 0,
    skip: int = 0,
    **_: Any,
) -> Generator[Any, None, None]:
    """The batches of the partition's rows in this ``order``: a ``UnitJob.batches``."""
    size = loader.batch_size
    rows = [order[start : start + size] for start in range(skip * size, len(order), size)]
    batches = (_of_rows if loader.embed is None else _embedded)(partition, rows, loader)
    carried, in_workers = ForeignGenerators(loader.objects), loader.workers and loader.embed is None
    for number in range(skip, skip + len(rows)):
        of_batch = seed_of_batch((seed,), number)
        with seeded(of_batch) if in_workers else nullcontext(), carried.seeded(of_batch):
            batch = next(batches)
            batch = batch if loader.transform is None else loader.transform(batch)
        yield batch


def _of_rows(partition: Partition, rows: Sequence[Index], loader: LoaderSettings) -> Iterator[Any]:
    return (_of_dataset if loader.dataset is not None else _of_columns)(partition, rows, loader)


def _embedded(partition: Partition, rows: Sequence[Index], loader: LoaderSettings) -> Iterator[Any]:
    """All of the partition's rows are embedded in chunks, and divided into single ones."""
    assert loader.embed is not None
    starts = range(0, partition.rows, CHUNK)
    chunks = [np.arange(start, min(start + CHUNK, partition.rows)) for start in starts]
    single: list[Any] = []
    batches = _of_rows(partition, chunks, loader)
    for index in chunks:
        with seeded(0):
            chunk = embedded_chunk(loader.embed, loader.arrays, next(batches))
        single += [leafwise(itemgetter(row), chunk) for row in range(len(index))]
    for index in rows:
        yield leafwise(lambda *each: stacked(each), *(single[row] for row in index.tolist()))


def _of_dataset(partition: Partition, rows: Sequence[Index], loader: LoaderSettings) -> Iterator[Any]:
    from torch import Generator as TorchGenerator
    from torch.utils.data import DataLoader

    assert loader.dataset is not None
    datasets, numbers, start = loader.dataset.make(), np.asarray(partition.columns[ROW]), 0
    for split in (split for split in SPLITS if split in datasets.by_split):
        dataset = datasets.by_split[split]
        if numbers[0] < start + len(dataset):
            break
        start += len(dataset)
    places = [(numbers[index] - start).tolist() for index in rows]
    collate = loader.collate or datasets.collate
    # Its iterator would draw from torch's generator; the pass does that, once an epoch.
    return iter(DataLoader(dataset, batch_sampler=places, collate_fn=collate, generator=TorchGenerator()))


def _of_columns(partition: Partition, rows: Sequence[Index], loader: LoaderSettings) -> Iterator[Any]:
    for index in rows:
        columns = {name: _values(partition, name, index.tolist(), loader) for name in partition.columns}
        if loader.collate is not None:
            of_rows = zip(*columns.values(), strict=True)
            yield loader.collate([_arranged(dict(zip(columns, row, strict=True)), loader) for row in of_rows])
        else:
            yield _arranged(dict(_together(partition, columns, loader)), loader)


def _values(partition: Partition, name: str, rows: Sequence[int], loader: LoaderSettings) -> list[Any]:
    """A column's rows, opened and augmented one by one."""
    column, decode, augment = partition.columns[name], loader.decode.get(name), loader.augment.get(name)
    if not isinstance(column, Ragged):
        return [_array(np.asarray(column)[row].copy(), loader) for row in rows]
    each = [column.row(row).copy() for row in rows]
    if column.kind == "ragged":
        return [_array(value, loader) for value in each]
    opened = [value.tobytes() if decode is None else decode(value.tobytes()) for value in each]
    return opened if augment is None else [augment(value) for value in opened]


def _together(
    partition: Partition, columns: Mapping[str, list[Any]], loader: LoaderSettings
) -> Iterator[tuple[str, Any]]:
    """The rows of each column as one value of a batch."""
    for name, rows in columns.items():
        column = partition.columns[name]
        if not isinstance(column, Ragged):
            yield name, _stacked(rows)
        elif column.kind == "ragged" and loader.ragged == "pad":
            longest = max(map(len, rows))
            shape, pad = (longest, *column.value_shape), loader.pad_value.get(name, 0)
            padded = [np.full(shape, pad, np.asarray(column.values).dtype) for _ in rows]
            for whole, row in zip(padded, rows, strict=True):
                whole[: len(row)] = row
            yield name, _stacked([_array(row, loader) for row in padded])
            yield name + LENGTHS, _array(np.array([len(row) for row in rows]), loader)
        elif name in loader.decode:
            arrays = [_array(np.array(row) if loader.arrays == "numpy" else row, loader) for row in rows]
            yield name, arrays if loader.ragged == "list" else _stacked(arrays)
        else:
            yield name, rows


def _stacked(rows: Sequence[Any]) -> Any:
    if isinstance(rows[0], np.ndarray | np.generic):
        return np.stack(rows)
    import torch

    return torch.stack(list(rows))


def _array(value: Any, loader: LoaderSettings) -> Any:
    """An array of the task's library."""
    if loader.arrays == "numpy":
        return value
    import torch

    return value if isinstance(value, torch.Tensor) else torch.from_numpy(np.array(value))


def _arranged(columns: dict[str, Any], loader: LoaderSettings) -> Any:
    if loader.layout == "dict":
        return columns
    return next(iter(columns.values())) if len(columns) == 1 else tuple(columns.values())
