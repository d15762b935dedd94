"""Columns that grow a batch of rows at a time: in memory while they are small, then in temporary files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.manifest import Kind
from cerebro_elastic.data.ragged import Ragged, offsets_of
from cerebro_elastic.errors import DataError
from cerebro_elastic.system.files import CHUNK


class GrowingColumn:
    """A column ``name`` of rows of one shape or of varying lengths. ``in_memory`` bytes of it are in
    memory."""

    def __init__(self, name: str, in_memory: int) -> None:
        self._values = _GrowingArray(name, in_memory)
        self._lengths: list[NDArray[np.int64]] = []
        self._kind: Kind = "rows"

    def append(self, column: NDArray[Any] | Ragged) -> None:
        """Append rows. Raises ``DataError`` if their shape differs from that of the others."""
        if isinstance(column, Ragged):
            self._kind = column.kind
            self._lengths.append(column.lengths)
            column = column.values
        self._values.append(column)

    def whole(self) -> NDArray[Any] | Ragged:
        """All rows. Sequences that have all one length are rows of one shape."""
        values = self._values.whole()
        if self._kind == "rows":
            return values
        lengths = np.concatenate(self._lengths)
        if self._kind == "ragged" and len(set(lengths.tolist())) == 1:
            return values.reshape(len(lengths), int(lengths[0]), *values.shape[1:])
        return Ragged(values, offsets_of(lengths), self._kind)


class _GrowingArray:
    """An array that grows along its first axis; ``name`` is for messages."""

    def __init__(self, name: str, in_memory: int) -> None:
        self._name = name
        self._in_memory = in_memory
        self._parts: list[NDArray[Any]] = []
        self._file: IO[bytes] | None = None
        self._dtype: np.dtype[Any] | None = None
        self._shape: tuple[int, ...] = ()

    def append(self, part: NDArray[Any]) -> None:
        """Append rows; the dtype becomes one that has all values."""
        if self._dtype is None:
            self._dtype, self._shape = part.dtype, part.shape[1:]
        if part.shape[1:] != self._shape and len(part):
            raise DataError(
                f"column {self._name!r} has values of shape {list(part.shape[1:])}, and before of shape "
                f"{list(self._shape)}: only the first axis of its rows may vary"
            )
        if part.dtype != self._dtype and len(part):
            self._become(np.promote_types(self._dtype, part.dtype))
        self._parts.append(part.astype(self._dtype))
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
        """Move what is in memory to the file."""
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115  # it is there as long as the column
        for part in self._parts:
            self._file.write(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
        self._parts = []

    def _become(self, dtype: np.dtype[Any]) -> None:
        """Change the dtype of what is there."""
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
