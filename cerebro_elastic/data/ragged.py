"""Columns whose rows have varying lengths: the values of all rows, one row after the other, and the offset of
each row. Encoded values, such as a JPEG each, are rows of bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.manifest import Kind
from cerebro_elastic.errors import DataError
from cerebro_elastic.system.files import CHUNK

Index: TypeAlias = NDArray[np.int64]

OFFSETS = "<i8"
"""The dtype of offsets in a file."""

_LONG = 128
"""From this many values per row on, rows are copied one by one: faster than an index of all values."""


class Varying(ABC):
    """A column whose rows have varying lengths."""

    kind: Kind
    """``ragged``: sequences; ``bytes``: encoded values."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """The values' dtype; of encoded values ``uint8``."""

    @property
    @abstractmethod
    def value_shape(self) -> tuple[int, ...]:
        """The shape of one value of a sequence."""

    @property
    @abstractmethod
    def lengths(self) -> Index:
        """How many values each row has."""

    @abstractmethod
    def of(self, rows: Index) -> Varying:
        """These rows as a separate column."""

    @abstractmethod
    def pieces(self, rows: Index) -> Iterator[NDArray[Any]]:
        """The values of ``rows``, one row after the other, in arrays of about ``CHUNK`` bytes."""

    def take(self, rows: Index) -> NDArray[Any]:
        """The rows, as an array of objects: arrays or ``bytes``."""
        taken = np.empty(len(rows), object)
        for at in range(len(rows)):
            values = np.concatenate(list(self.pieces(rows[at : at + 1])))
            taken[at] = values.tobytes() if self.kind == "bytes" else values
        return taken

    @property
    def missing(self) -> Mapping[int, str]:
        """The rows without a value, and their names in messages."""
        return {}

    def __len__(self) -> int:
        return len(self.lengths)


Arrays: TypeAlias = Mapping[str, NDArray[Any]]
Columns: TypeAlias = Mapping[str, NDArray[Any] | Varying]


@dataclass(frozen=True)
class Ragged(Varying):
    """A column of varying lengths in memory, or mapped from a file."""

    values: NDArray[Any]
    """The values of all rows, of shape ``(values, ...)``."""
    offsets: Index
    """Row ``i`` has the values from ``offsets[i]`` to ``offsets[i + 1]``."""
    kind: Kind = "ragged"

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.values.dtype

    @property
    def value_shape(self) -> tuple[int, ...]:
        return self.values.shape[1:]

    @cached_property
    def lengths(self) -> Index:
        return np.diff(self.offsets)

    def row(self, at: int) -> NDArray[Any]:
        return self.values[self.offsets[at] : self.offsets[at + 1]]

    def as_rows(self) -> Ragged | NDArray[Any]:
        """Sequences that have all one length as rows of one shape."""
        if self.kind != "ragged" or not len(self) or (self.lengths != self.lengths[0]).any():
            return self
        return self.values.reshape(len(self), int(self.lengths[0]), *self.value_shape)

    def of(self, rows: Index) -> Ragged:
        """These rows as a separate column."""
        values = [self.values[:0], *self.pieces(rows)]
        return Ragged(np.concatenate(values), offsets_of(self.lengths[rows]), self.kind)

    def pieces(self, rows: Index) -> Iterator[NDArray[Any]]:
        value_bytes = max(1, self.values[:1].nbytes)
        for part in parts(self.lengths[rows] * value_bytes):
            yield np.concatenate([self.row(at) for at in rows[part].tolist()])


def parts(sizes: Index) -> Iterator[slice]:
    """Slices of rows of about ``CHUNK`` bytes together, at least one row each."""
    numbers = np.cumsum(sizes) // CHUNK
    bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(sizes)]
    return (slice(start, stop) for start, stop in pairwise(bounds) if stop > start)


def offsets_of(lengths: NDArray[Any]) -> Index:
    """Where rows of these lengths begin and, last, where they all end."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def check_offsets(offsets: Index, values: int, name: str) -> None:
    """Raise ``DataError`` unless the offsets begin with 0, never fall and end at the number of values."""
    if offsets[0] != 0:
        raise DataError(f"{name} begin with {offsets[0]} instead of 0: prepare the dataset again")
    if len(falls := np.flatnonzero(np.diff(offsets) < 0)):
        row = int(falls[0])
        raise DataError(
            f"{name} fall from {offsets[row]} to {offsets[row + 1]} in row {row}: prepare the dataset again"
        )
    if offsets[-1] != values:
        raise DataError(
            f"{name} end at {offsets[-1]}, but there are {values} values: prepare the dataset again"
        )


def padded(values: NDArray[Any], starts: Index, lengths: Index, width: int) -> NDArray[Any]:
    """An array of shape ``(rows, width, ...)``: each row its values from ``starts`` on, then zeros."""
    rows = np.zeros((len(starts), width, *values.shape[1:]), values.dtype)
    fill_rows(rows, values, starts, lengths)
    return rows


def fill_rows(rows: NDArray[Any], values: NDArray[Any], starts: Index, lengths: Index) -> None:
    """Copy each row's values from ``starts`` on to the beginning of its row."""
    total = int(lengths.sum())
    if total > _LONG * len(starts):
        for row, start, length in zip(rows, starts.tolist(), lengths.tolist(), strict=True):
            row[:length] = values[start : start + length]
    elif total:
        index = np.repeat(starts - offsets_of(lengths)[:-1], lengths) + np.arange(total)
        rows[inside(lengths, rows.shape[1])] = values[index]


def inside(lengths: Index, width: int) -> NDArray[np.bool_]:
    """The mask of values in rows padded to ``width``."""
    mask: NDArray[np.bool_] = np.arange(width) < lengths[:, np.newaxis]
    return mask


def encoded(values: Sequence[Any], name: str) -> Ragged:
    """A column of encoded values. Raises ``DataError`` if one is not ``bytes``."""
    for row, value in enumerate(values):
        if not isinstance(value, bytes | bytearray | memoryview):
            raise DataError(
                f"column {name!r} has {_described(value)} in row {row} (the first is 0), and bytes in "
                "others: all rows must have bytes"
            )
    lengths = np.fromiter((memoryview(value).nbytes for value in values), np.int64, len(values))
    return Ragged(np.frombuffer(b"".join(values), np.uint8), offsets_of(lengths), "bytes")


def sequences(values: Sequence[Any], name: str) -> Ragged:
    """A column of sequences. Raises ``DataError`` if one has values of another type or shape than the first
    that is not empty; an empty one fits to all."""
    rows = [_sequence(value, name, row) for row, value in enumerate(values)]
    first = next((row for row, array in enumerate(rows) if array.size), 0)
    like = rows[first]
    for row, array in enumerate(rows):
        if not array.size:
            rows[row] = np.empty((0, *like.shape[1:]), like.dtype)
        elif (array.dtype, array.shape[1:]) != (like.dtype, like.shape[1:]):
            raise DataError(
                f"column {name!r} has {_described(array)} in row {row}, and {_described(like)} in row "
                f"{first} (the first is 0): rows may differ in the length of their first axis only; for "
                "images of varying size give each as bytes (PNG, JPEG) and `decode` them"
            )
    return Ragged(np.concatenate(rows), offsets_of(np.array([len(array) for array in rows])))


def _sequence(value: Any, name: str, row: int) -> NDArray[Any]:
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.empty((), object)
    if array.ndim == 0 or array.dtype.kind in "OSU":
        raise DataError(
            f"column {name!r} has {_described(value)} in row {row} (the first is 0): a row of a ragged "
            "column is a sequence of numbers"
        )
    return array


def _described(value: Any) -> str:
    if isinstance(value, np.ndarray) and value.ndim:
        return f"{value.dtype}{list(value.shape)}"
    return "no value" if value is None else f"a {type(value).__name__}"


def as_ragged(column: NDArray[Any] | Varying) -> Varying:
    """The column as one of varying lengths, for data beside others whose rows vary."""
    if isinstance(column, Varying) or column.ndim < 2:
        return column  # type: ignore[return-value]  # the comparison with the others refuses it
    return of_one_length(column)


def of_one_length(rows: NDArray[Any]) -> Ragged:
    """Rows of shape ``(rows, length, ...)`` as sequences."""
    count, length = rows.shape[:2]
    return Ragged(rows.reshape(-1, *rows.shape[2:]), np.arange(count + 1, dtype=np.int64) * length)
