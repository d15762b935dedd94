"""Writes the files of a column, in the form of a prepared partition's, a piece of its rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.made_partition import numbered
from cerebro_elastic.data.manifest import Column, ColumnFile
from cerebro_elastic.data.preparing.column_files import npy_header
from cerebro_elastic.data.ragged import OFFSETS, Ragged, offsets_of
from cerebro_elastic.system.files import as_its_folder, replacing


@contextmanager
def column_writer(folder: Path, column: Column, first: int) -> Iterator[ColumnWriter]:
    """A writer of the files of ``column`` in ``folder``: one or, of varying lengths, offsets and values, from
    the ``first`` number on. They have their names when the block ends well."""
    values = folder / numbered(first + (column.kind != "rows"))
    with _array_file(values, column) as file:
        yield ColumnWriter(column, folder / numbered(first), file)


class ColumnWriter:
    """Writes a ``column``. Of one of varying lengths, ``path`` is that of the offsets."""

    def __init__(self, column: Column, path: Path, values: _ArrayFile) -> None:
        self._column = column
        self._path = path
        self._values = values
        self._lengths: list[NDArray[np.int64]] = []

    def append(self, rows: NDArray[Any] | Ragged) -> None:
        """Append rows of the column's dtype and shape."""
        if isinstance(rows, Ragged):
            self._lengths.append(rows.lengths)
            rows = rows.values
        self._values.append(rows)

    def finish(self) -> list[ColumnFile]:
        """Write the parts that are known at the end; returns the files, without their digests."""
        if self._column.kind == "rows":
            return [self._values.finish()]
        with _array_file(self._path, Column(self._column.name, OFFSETS, ())) as offsets:
            offsets.append(offsets_of(np.concatenate(self._lengths)))
            written = offsets.finish()
        return [written, self._values.finish(varies=True)]


@contextmanager
def _array_file(path: Path, column: Column) -> Iterator[_ArrayFile]:
    with replacing(str(path)) as temporary, open(temporary, "xb", opener=as_its_folder) as file:
        yield _ArrayFile(path.name, column, file)


class _ArrayFile:
    """An array's ``file`` that grows along its first axis."""

    def __init__(self, name: str, column: Column, file: BinaryIO) -> None:
        self._name = name
        self._dtype, self._shape = np.dtype(column.dtype), column.shape
        self._file = file
        self._length = 0
        self._write_header()

    def append(self, values: NDArray[Any]) -> None:
        contiguous = np.ascontiguousarray(values, self._dtype)
        self._file.write(contiguous.reshape(-1).view(np.uint8).data)
        self._length += len(values)

    def finish(self, *, varies: bool = False) -> ColumnFile:
        size = self._file.tell()
        self._file.seek(0)
        self._write_header()
        return ColumnFile(self._name, size, "", self._length if varies else None)

    def _write_header(self) -> None:
        """Its size does not depend on the length."""
        self._file.write(npy_header(self._dtype, (self._length, *self._shape)))
