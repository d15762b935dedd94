"""What a prepared dataset holds, for people: rows, columns, classes, sizes, and a few samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.first_rows import Rows, first_rows
from cerebro_elastic.data.manifest import SPLITS, Manifest, Split, read_manifest
from cerebro_elastic.data.ragged import Ragged
from cerebro_elastic.errors import DataError
from cerebro_elastic.system.files import Place, locate, translated

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
    """What a dataset holds."""

    url: str
    manifest: Manifest
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
            files = iter(partition.files)
            for column in manifest.columns:
                total[column.name] += sum(next(files).bytes for _ in range(1 if column.kind == "rows" else 2))
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
    """The rows of each value in a split; of some values, if there are too many for classes."""
    counts: dict[int, int] = {}
    for files in manifest.split(split):
        column = first_rows(root, manifest.columns, files, files.rows, [name])[name]
        values, rows = np.unique(np.asarray(column), return_counts=True)
        for value, number in zip(values.tolist(), rows.tolist(), strict=True):
            counts[int(value)] = counts.get(int(value), 0) + number
            if len(counts) > _MOST_CLASSES:
                return counts
    return counts


def _samples(manifest: Manifest, root: Place) -> list[Row]:
    files = manifest.train[0]
    columns = first_rows(root, manifest.columns, files, _SAMPLE)
    return [
        {name: _value(column, row) for name, column in columns.items()}
        for row in range(min(_SAMPLE, files.rows))
    ]


def _value(column: Rows, row: int) -> Value:
    if not isinstance(column, Ragged):
        return np.asarray(column[row])
    values = column.row(row)
    return values.tobytes() if column.kind == "bytes" else values
