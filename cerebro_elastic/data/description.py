"""What a prepared dataset holds, for people: rows, columns, classes, sizes, and a few samples."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.manifest import SPLITS, Column, ColumnFile, Manifest, Split, read_manifest
from cerebro_elastic.errors import DataError
from cerebro_elastic.files import Place, locate, open_read, translated

_MOST_CLASSES = 100
"""A column of whole numbers with more different values has no classes."""
_SAMPLE = 12
"""So many rows are shown."""

Row = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class ClassBalance:
    """How many rows each class has in a column of classes."""

    column: str
    """The column."""
    classes: Mapping[int, str]
    """The name of each value."""
    counts: Mapping[Split, Mapping[int, int]]
    """By split, the rows of each value."""


@dataclass(frozen=True, slots=True)
class Description:
    """What a dataset holds."""

    url: str
    """Where it is."""
    manifest: Manifest
    """Its manifest."""
    column_bytes: Mapping[str, int]
    """The bytes of each column in all files."""
    balances: Sequence[ClassBalance]
    """The balance of each column of classes."""
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
        return sum(file.bytes for partition in self.manifest.split(split) for file in partition.files)


def describe(url: str) -> Description:
    """Describe the prepared dataset at ``url``.

    It reads the columns that may have classes, and the first rows of the others. Raises ``DataError`` if
    there is none, or it cannot be read.
    """
    manifest = read_manifest(url)
    with translated(DataError, f"cannot read the dataset {url}"):
        root = locate(url)
        return Description(
            url,
            manifest,
            _column_bytes(manifest),
            list(_balances(manifest, root)),
            _samples(manifest, root),
        )


def _column_bytes(manifest: Manifest) -> dict[str, int]:
    total = dict.fromkeys((column.name for column in manifest.columns), 0)
    for split in SPLITS:
        for partition in manifest.split(split):
            for column, file in zip(manifest.columns, partition.files, strict=True):
                total[column.name] += file.bytes
    return total


def _balances(manifest: Manifest, root: Place) -> Iterator[ClassBalance]:
    for at, column in enumerate(manifest.columns):
        if column.shape or np.dtype(column.dtype).kind not in "biu":
            continue
        counts = {
            split: _counted(root, [partition.files[at] for partition in manifest.split(split)])
            for split in SPLITS
        }
        values = sorted({value for of_split in counts.values() for value in of_split})
        if len(values) <= _MOST_CLASSES:
            names = dict(enumerate(manifest.vocabulary.get(column.name, ())))
            classes = {value: str(names.get(value, value)) for value in values}
            yield ClassBalance(column.name, classes, counts)


def _counted(root: Place, files: Sequence[ColumnFile]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for file in files:
        values, rows = np.unique(_first_rows(root / file.path), return_counts=True)
        for value, number in zip(values.tolist(), rows.tolist(), strict=True):
            counts[int(value)] = counts.get(int(value), 0) + number
            if len(counts) > _MOST_CLASSES:
                return counts
    return counts


def _samples(manifest: Manifest, root: Place) -> list[Row]:
    first = manifest.train[0]
    columns = {
        column.name: _first_rows(root / file.path, _SAMPLE)
        for column, file in zip(manifest.columns, first.files, strict=True)
    }
    return [
        {name: column[row] for name, column in columns.items()} for row in range(min(_SAMPLE, first.rows))
    ]


def _first_rows(place: Place, most: int | None = None) -> NDArray[Any]:
    """The first rows of a ``.npy`` file, or all of them; no more of it is read."""
    with open_read(place) as raw, io.BufferedReader(raw) as file:
        np.lib.format.read_magic(file)
        (rows, *shape), _, dtype = np.lib.format.read_array_header_1_0(file)
        rows = rows if most is None else min(most, rows)
        data = file.read(rows * math.prod(shape) * dtype.itemsize)
        return np.frombuffer(data, dtype).reshape(rows, *shape)


def is_picture(column: Column) -> bool:
    """Whether the rows of a column look like images: ``HxW``, ``HxWxC`` or ``CxHxW`` with 1, 3 or 4
    channels."""
    return picture_axes(column.shape) is not None and np.dtype(column.dtype).kind in "biuf"


def picture_axes(shape: Sequence[int]) -> tuple[int, ...] | None:
    """The axes of an image of this shape in the order height, width, channels; ``None`` if it is none."""
    channels, smallest = (1, 3, 4), 8
    match tuple(shape):
        case (height, width) if min(height, width) >= smallest:
            return (0, 1)
        case (height, width, last) if last in channels and min(height, width) >= smallest:
            return (0, 1, 2)
        case (first, height, width) if first in channels and min(height, width) >= smallest:
            return (1, 2, 0)
        case _:
            return None
