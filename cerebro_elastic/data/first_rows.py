"""The first rows of a prepared partition, or all of them, read from its files where they lie."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.manifest import Column, PartitionFiles
from cerebro_elastic.data.ragged import Ragged
from cerebro_elastic.system.files import Place, open_read

Rows: TypeAlias = NDArray[np.generic] | Ragged


def first_rows(
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
        column.name: _read(column, places, rows)
        for column, places in _places(root, columns, files)
        if wanted is None or column.name in wanted
    }


def _places(
    root: Place, columns: Iterable[Column], files: PartitionFiles
) -> Iterator[tuple[Column, list[Place]]]:
    """Each column with its file; of varying lengths that of the offsets, and that of the values."""
    places = (root / file.path for file in files.files)
    for column in columns:
        yield column, [next(places) for _ in range(1 if column.kind == "rows" else 2)]


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
