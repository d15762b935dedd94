"""The content of a prepared dataset, for people: rows, columns, classes, sizes, and a few samples. The first
rows of a partition, or all of them, are read from its files where they lie."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.manifest import SPLITS, Column, Manifest, PartitionFiles, Split, read_manifest
from cerebro_elastic.data.ragged import Ragged
from cerebro_elastic.errors import DataError
from cerebro_elastic.system.files import Place, locate, open_read, translated

_MOST_CLASSES = 100
"""A column of whole numbers with more different values has no classes."""
_SAMPLE = 12
"""The number of rows to show."""

Value: TypeAlias = NDArray[Any] | bytes
Row: TypeAlias = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class ClassBalance:
    """How many rows each class has in a column of classes."""

    column: str
    classes: Mapping[int, str]
    """The name of each value."""
    counts: Mapping[Split, Mapping[int, int]]
    """By split, the rows of each value."""


@dataclass(frozen=True, slots=True)
class Description:
    """The content of a dataset."""

    manifest: Manifest
    column_bytes: Mapping[str, int]
    """The bytes of each column in all files."""
    balances: Sequence[ClassBalance]
    samples: Sequence[Row]
    """The first rows of the first training partition, which are shuffled."""

    @property
    def splits(self) -> Sequence[Split]:
        """The splits that have rows."""
        return [split for split in SPLITS if self.manifest.split(split)]

    def rows(self, split: Split) -> Sequence[int]:
        """The rows of each partition of a split."""
        return [partition.rows for partition in self.manifest.split(split)]

    def split_bytes(self, split: Split) -> int:
        """The bytes of a split's files."""
        return sum(partition.bytes for partition in self.manifest.split(split))


def describe(url: str) -> Description:
    """Describe the prepared dataset at ``url``.

    It reads the columns that may have classes, and the first rows of the others. Raises ``DataError`` if the
    dataset does not exist or cannot be read.
    """
    manifest = read_manifest(url)
    if manifest.shards:
        raise DataError(
            f"{url} is a dataset of {len(manifest.shards)} shards, whose rows stay where they are: describe "
            "some of them as a source, such as `cerebro prepare SHARD --describe`"
        )
    with translated(DataError, f"cannot read the dataset {url}"):
        root = locate(url)
        return Description(
            manifest,
            _column_bytes(manifest),
            list(_balances(manifest, root)),
            _samples(manifest, root),
        )


def _column_bytes(manifest: Manifest) -> dict[str, int]:
    total = dict.fromkeys((column.name for column in manifest.columns), 0)
    for split in SPLITS:
        for partition in manifest.split(split):
            for column, files in partition.by_column(manifest.columns):
                total[column.name] += sum(file.bytes for file in files)
    return total


def _balances(manifest: Manifest, root: Place) -> Iterator[ClassBalance]:
    for column in manifest.columns:
        if column.kind != "rows" or column.shape or np.dtype(column.dtype).kind not in "biu":
            continue
        counts = {split: _counted(manifest, root, split, column.name) for split in SPLITS}
        values = sorted({value for of_split in counts.values() for value in of_split})
        if len(values) <= _MOST_CLASSES:
            names = dict(enumerate(manifest.vocabulary.get(column.name, ())))
            classes = {value: str(names.get(value, value)) for value in values}
            yield ClassBalance(column.name, classes, counts)


def _counted(manifest: Manifest, root: Place, split: Split, name: str) -> dict[int, int]:
    """The rows of each value in a split; of some values only, if they are too many for classes."""
    counts: dict[int, int] = {}
    for files in manifest.split(split):
        column = first_rows_of_files(root, manifest.columns, files, files.rows, [name])[name]
        values, rows = np.unique(np.asarray(column), return_counts=True)
        for value, number in zip(values.tolist(), rows.tolist(), strict=True):
            counts[int(value)] = counts.get(int(value), 0) + number
            if len(counts) > _MOST_CLASSES:
                return counts
    return counts


def _samples(manifest: Manifest, root: Place) -> list[Row]:
    files = manifest.train[0]
    columns = first_rows_of_files(root, manifest.columns, files, _SAMPLE)
    return [
        {name: _value(column, row) for name, column in columns.items()}
        for row in range(min(_SAMPLE, files.rows))
    ]


def _value(column: Rows, row: int) -> Value:
    if not isinstance(column, Ragged):
        return np.asarray(column[row])
    values = column.row(row)
    return values.tobytes() if column.kind == "bytes" else values


Rows: TypeAlias = NDArray[np.generic] | Ragged


def first_rows_of_files(
    root: Place,
    columns: Iterable[Column],
    files: PartitionFiles,
    most: int,
    only: Iterable[str] | None = None,
) -> dict[str, Rows]:
    """The first ``most`` rows of the partition by column; no more of the files is read.

    Args:
        root: The dataset.
        columns: All of its columns.
        files: The partition.
        most: The number of rows.
        only: The columns to read; by default all.
    """
    wanted = None if only is None else set(only)
    rows = min(most, files.rows)
    return {
        column.name: _read(column, [root / file.path for file in of_column], rows)
        for column, of_column in files.by_column(columns)
        if wanted is None or column.name in wanted
    }


def _read(column: Column, places: list[Place], rows: int) -> Rows:
    if column.kind == "rows":
        return _items(places[0], rows)
    offsets = np.asarray(_items(places[0], rows + 1), np.int64)
    return Ragged(_items(places[1], int(offsets[-1])), offsets, column.kind)


def _items(place: Place, count: int) -> NDArray[np.generic]:
    """The first items of a ``.npy`` file."""
    with open_read(place) as raw, io.BufferedReader(raw) as file:
        np.lib.format.read_magic(file)
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        items = file.read(count * math.prod(shape[1:]) * dtype.itemsize)
        return np.frombuffer(items, dtype).reshape(count, *shape[1:])
