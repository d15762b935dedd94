"""Columns that grow a batch of rows at a time: in memory while they are small, then in temporary files. The
columns of a torch ``Dataset`` grow so, too; each of its rows is read once (text stays in memory)."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.categories import Coded
from cerebro_elastic.data.kinds.values import as_column
from cerebro_elastic.data.manifest import Category, Kind
from cerebro_elastic.data.ragged import Ragged, of_one_length, offsets_of
from cerebro_elastic.errors import DataError
from cerebro_elastic.registry import place_in
from cerebro_elastic.system.files import CHUNK

_OBJECTS = (Mapping, list, tuple, set)


class GrowingColumn:
    """A column ``name`` of rows of one shape or of varying lengths. ``in_memory`` bytes of it are in
    memory."""

    def __init__(self, name: str, in_memory: int) -> None:
        self._values = _GrowingArray(name, in_memory)
        self._lengths: list[NDArray[np.int64]] = []
        self._kind: Kind = "rows"
        self._categories: Sequence[Category] = ()

    def append(self, column: NDArray[Any] | Ragged) -> None:
        """Append rows. Raises ``DataError`` if their shape differs from that of the others."""
        if isinstance(column, Coded):
            self._categories = column.categories
        elif not isinstance(column, Ragged) and column.ndim > 1:
            column = of_one_length(column)  # the rows of other parts may be longer
        if isinstance(column, Ragged):
            self._kind = column.kind
            self._lengths.append(column.lengths)
            column = column.values
        self._values.append(column.astype(object) if column.dtype.kind == "U" else column)

    def whole(self) -> NDArray[Any] | Ragged:
        """All rows. Sequences that have all one length are rows of one shape."""
        values = self._values.whole()
        if self._kind == "rows":
            return Coded.of(values, self._categories) if self._categories else values
        whole = Ragged(values, offsets_of(np.concatenate(self._lengths)), self._kind)
        return whole.as_rows()


class _GrowingArray:
    """An array that grows along its first axis; ``name`` is for messages."""

    def __init__(self, name: str, in_memory: int) -> None:
        self._name = name
        self._in_memory = in_memory
        self._parts: list[NDArray[Any]] = []
        self._file: IO[bytes] | None = None
        self._dtype: np.dtype[Any] | None = None
        self._shape: tuple[int, ...] = ()
        self._length = 0

    def append(self, part: NDArray[Any]) -> None:
        """Append rows; the dtype becomes one that has all values."""
        if not self._length:  # nothing is known of the others' dtype and shape by parts without rows
            self._dtype, self._shape, self._parts = part.dtype, part.shape[1:], []
        elif not len(part):
            return
        self._length += len(part)
        if part.shape[1:] != self._shape:
            raise DataError(
                f"column {self._name!r} has values of shape {list(part.shape[1:])}, and before of shape "
                f"{list(self._shape)}: only the first axis of its rows may vary"
            )
        assert self._dtype is not None
        if part.dtype != self._dtype:
            self._become(np.promote_types(self._dtype, part.dtype))
        self._parts.append(part.astype(self._dtype, copy=False))
        if self._dtype.kind != "O" and sum(part.nbytes for part in self._parts) > self._in_memory:
            self._spill()

    def whole(self) -> NDArray[Any]:
        if self._file is None:
            return np.concatenate(self._parts)
        self._spill()
        return self._mapped()

    def _mapped(self) -> NDArray[Any]:
        assert self._file is not None
        assert self._dtype is not None
        self._file.flush()
        rows = self._file.tell() // max(1, self._dtype.itemsize * int(np.prod(self._shape)))
        return np.memmap(self._file, self._dtype, "r", shape=(rows, *self._shape))

    def _spill(self) -> None:
        """Move the rows in memory to the file."""
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115  # it is there as long as the column
        for part in self._parts:
            self._file.write(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
        self._parts = []

    def _become(self, dtype: np.dtype[Any]) -> None:
        """Change the dtype of the present rows."""
        before = list(self._stored())  # as the dtype still is
        self._dtype = dtype
        self._file, self._parts = None, []
        for part in before:
            self._parts.append(part.astype(dtype))
            if dtype.kind != "O":
                self._spill()

    def _stored(self) -> Iterator[NDArray[Any]]:
        parts = self._parts
        if self._file is not None:
            mapped = self._mapped()
            step = max(1, CHUNK // max(1, mapped[:1].nbytes))
            yield from (mapped[start : start + step] for start in range(0, len(mapped), step))
        yield from parts


def is_dataset(value: Any) -> bool:
    """Whether ``value`` is a torch ``Dataset``, an ``IterableDataset`` included. Imports nothing: a caller
    that has one has imported torch."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and isinstance(value, data.Dataset)


def materialized(dataset: Any, what: str) -> dict[str, NDArray[Any] | Ragged]:
    """The dataset's rows, by column.

    The items of a tuple are the columns ``x`` and ``y`` or, of more, ``x0``, ``x1``, ...; a row that is one
    value is ``x``. A dict has its own names. Raises ``DataError`` for rows that fit no columns, by number;
    ``what`` names the dataset.
    """
    columns: dict[str, _Values] = {}
    names: list[str] = []
    for number, row in enumerate(_rows(dataset, what)):
        values = _named(row, f"row {number} of {what}")
        if not names:
            names = list(values)
            columns = {name: _Values(f"column {name!r} of {what}") for name in names}
        if list(values) != names:
            raise DataError(
                f"row {number} of {what} has {', '.join(values)}, and row 0 has {', '.join(names)}: all rows "
                "must have the same values in the same order"
            )
        for name, value in values.items():
            columns[name].add(number, value)
    if not names:
        raise DataError(f"{what} has no rows")
    return {name: values.column() for name, values in columns.items()}


def _rows(dataset: Any, what: str) -> Iterator[Any]:
    by_number = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
    rows = map(dataset.__getitem__, range(len(dataset))) if by_number else iter(dataset)
    number = 0
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except (Exception, SystemExit) as exc:
            where = place_in(os.getcwd(), exc)
            raise DataError(
                f"row {number} of {what} failed at {where}: {type(exc).__name__}: {exc}; correct the "
                "dataset, or leave the row out there"
            ) from exc
        yield row
        number += 1


def _named(row: Any, what: str) -> dict[str, Any]:
    if isinstance(row, Mapping):
        named = {str(name): value for name, value in row.items()}
    elif isinstance(row, tuple | list):
        few = ("x", "y")[: len(row)] if len(row) <= 2 else None
        named = dict(zip(few or [f"x{at}" for at in range(len(row))], row, strict=True))
    else:
        named = {"x": row}
    for name, value in named.items():
        if value is None or isinstance(value, _OBJECTS):
            raise DataError(
                f"{what} has a {type(value).__name__} for {name!r}: a value is a number, an array, a tensor, "
                "text or bytes; use it without `materialize`, or return such values"
            )
    return named


class _Values:
    """The values of a column, all of one type; ``what`` names it."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._kind = ""
        self._column = GrowingColumn(what, 0)
        self._pending: list[Any] = []
        """Values that are not in the column yet."""
        self._pending_bytes = 0

    def add(self, number: int, value: Any) -> None:
        if isinstance(value, bytes | bytearray | memoryview):
            value, kind, size = bytes(value), "bytes", len(value)
        elif isinstance(value, str):
            kind, size = "text", len(value)
        else:
            value = np.asarray(value).copy()  # the dataset may write its next row into the same memory
            sizes = ", ".join(["...", *map(str, value.shape[1:])])
            kind, size = f"{value.dtype}[{sizes}]" if value.ndim else str(value.dtype), value.nbytes
            if value.dtype == object:
                raise DataError(f"{self._what} has values in row {number} that are no array")
        self._kind = self._kind or kind
        if kind != self._kind:
            raise DataError(
                f"{self._what} has {kind} in row {number}, and {self._kind} in row 0: all rows must have "
                "values of one type, which may differ in the length of their first axis only; for images of "
                "varying size return their bytes (PNG, JPEG), and `decode` them"
            )
        self._pending.append(value)
        self._pending_bytes += size
        if self._pending_bytes >= CHUNK:
            self._store()

    def column(self) -> NDArray[Any] | Ragged:
        if self._pending:
            self._store()
        return self._column.whole()

    def _store(self) -> None:
        column = as_column(self._what, self._pending)
        assert isinstance(column, np.ndarray | Ragged)
        self._column.append(column)
        self._pending, self._pending_bytes = [], 0
