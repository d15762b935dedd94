"""Arrays and columns of varying lengths in files, mapped into memory. They are sent to another process by
their files' names."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.manifest import Kind
from cerebro_elastic.data.ragged import Index, Ragged, check_offsets
from cerebro_elastic.data.reading.row_sums import row_sums
from cerebro_elastic.errors import DamagedData

Array: TypeAlias = NDArray[np.generic]

SUMS = ".sums"
"""The suffix of the file with the row sums of a column. It begins with the sha256 of the column's file."""
_KEPT = 16
"""The number of columns whose offsets are kept for the next batch of a process that makes batches."""


@dataclass(frozen=True, slots=True)
class MappedArray:
    """An array in a file."""

    path: Path
    dtype: str
    """The array's numpy dtype."""
    shape: tuple[int, ...]
    offset: int = 0
    """Bytes of the file before the array."""

    @classmethod
    def of(cls, array: Any) -> MappedArray:
        """Where an array that was mapped lies."""
        return cls(Path(array.filename), array.dtype.str, array.shape, array.offset)

    def open(self) -> Array:
        """Map it, read-only."""
        return np.memmap(self.path, self.dtype, "r", self.offset, self.shape)


def forget_checks(folder: Path) -> None:
    """Remove the row sums of all columns of the partition in ``folder``: the next fetch, in any process of
    the host, checks each of its files. What has damaged one of them may have damaged others."""
    for sums in folder.glob(f"*{SUMS}"):
        with suppress(OSError):
            sums.unlink()


@dataclass(frozen=True, slots=True)
class OffsetsFile:
    """The offsets of a column of varying lengths."""

    array: MappedArray
    sums: MappedArray
    """Their row sums, taken when the file was checked."""
    values: int
    """How many values the column has."""
    column: str

    def load(self) -> Index:
        """The offsets, in memory. Raises ``DamagedData`` if they have changed since they were checked,
        ``DataError`` if these can be no offsets."""
        offsets: Index = np.array(self.array.open())
        name = f"the offsets {self.array.path} of column {self.column!r}"
        if row_sums(offsets).tobytes() != self.sums.open().tobytes():
            forget_checks(self.sums.path.parent)
            raise DamagedData(f"{name} have changed since they were checked: they are fetched again")
        check_offsets(offsets, self.values, name)
        return offsets


@dataclass(frozen=True, kw_only=True)
class MappedRagged(Ragged):
    """A column of varying lengths whose values are mapped."""

    file: OffsetsFile
    """Where the offsets come from."""

    @classmethod
    def open(cls, values: MappedArray, file: OffsetsFile, kind: Kind) -> MappedRagged:
        """Map the values, and load the offsets."""
        return cls(values.open(), file.load(), kind, file=file)

    def __reduce__(self) -> tuple[Callable[..., MappedRagged], tuple[Any, ...]]:
        return _received, (MappedArray.of(self.values), self.file, self.kind)


def _received(values: MappedArray, file: OffsetsFile, kind: Kind) -> MappedRagged:
    return MappedRagged(values.open(), _offsets(file), kind, file=file)


@lru_cache(_KEPT)
def _offsets(file: OffsetsFile) -> Index:
    return file.load()
