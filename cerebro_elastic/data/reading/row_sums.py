"""A sum for each row: rows that are read from a file are compared with its content when it was checked.

The sum of a row is ``c[0] * w[0] + c[1] * w[1] + ...`` modulo 2**64, of its bytes as 64-bit words ``w`` and
fixed, odd, random ``c``. Damage in one word is always found. Random damage in several words of one row is
missed with a chance of 2**-64; the worst case is an even number of flips of the highest bits of words alone,
which a sum modulo 2**64 cannot see. The sums are made against accidents, not against attacks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.ragged import Index, padded
from cerebro_elastic.system.files import Chunk

Sums = NDArray[np.uint64]

_WORD = np.dtype("<u8")
_SEGMENT = 1 << 16
"""Words that are summed at once: a longer row is folded, so that its factors stay in a cache."""
_LONG = 1 << 15
"""Bytes from which on a row of bytes is not padded."""
_FOLD = np.uint64(0x9E3779B97F4A7C15)


def row_sums(rows: NDArray[Any]) -> Sums:
    """The sum of each of ``rows``, a contiguous array."""
    words = _words(rows.reshape(len(rows), -1))
    sums = _sum(words[:, :_SEGMENT])
    for start in range(_SEGMENT, words.shape[1], _SEGMENT):
        sums = sums * _FOLD + _sum(words[:, start : start + _SEGMENT])
    return sums


def padded_sums(rows: NDArray[Any]) -> Sums:
    """The sum of each of ``rows``, a contiguous array. Zeros at the end of a row add nothing."""
    words = _words(rows.reshape(len(rows), -1)) if rows.size else np.empty((len(rows), 0), np.uint64)
    sums: Sums = np.zeros(len(rows), np.uint64)
    for segment, start in enumerate(range(0, words.shape[1], _SEGMENT)):
        fold = np.uint64(pow(int(_FOLD), segment, 2**64))
        sums += _sum(words[:, start : start + _SEGMENT]) * fold
    return sums


def ragged_sums(values: NDArray[np.uint8], offsets: Index) -> Sums:
    """The sum of each row of bytes, as by ``padded_sums``: short rows of similar lengths are padded together,
    long ones summed one by one."""
    lengths = np.diff(offsets)
    sums: Sums = np.zeros(len(lengths), np.uint64)
    for row in np.flatnonzero(lengths >= _LONG):
        sums[row] = padded_sums(values[np.newaxis, offsets[row] : offsets[row + 1]])[0]
    bits = np.frexp(lengths)[1]
    for count in np.unique(bits[(lengths > 0) & (lengths < _LONG)]):
        rows = np.flatnonzero((bits == count) & (lengths < _LONG))
        sums[rows] = padded_sums(padded(values, offsets[rows], lengths[rows], int(lengths[rows].max())))
    return sums


def _sum(words: Sums) -> Sums:
    width = words.shape[1]
    sums: Sums = (
        words[:, 0] * _factors()[0] if width == 1 else np.einsum("ij,j->i", words, _factors()[:width])
    )
    return sums


def _words(rows: NDArray[Any]) -> Sums:
    """Each row as whole words, the last one filled up with zeros."""
    size = rows.shape[1] * rows.itemsize
    if size % _WORD.itemsize:
        padded = np.zeros((len(rows), size + -size % _WORD.itemsize), np.uint8)
        padded[:, :size] = rows.view(np.uint8)
        rows = padded
    return rows.view(_WORD)


@cache
def _factors() -> Sums:
    """The factors ``c``: the same in every release, for caches outlive releases (tests hold stored sums)."""
    factors: Sums = np.random.PCG64(np.random.SeedSequence(0)).random_raw(_SEGMENT) | np.uint64(1)
    return factors


class RowSums(ABC):
    """The sums of the rows of a file that is read in chunks.

    Args:
        start: Bytes of the file before the first row.
        rows: Number of rows.
    """

    def __init__(self, start: int, rows: int) -> None:
        self._skip = start
        self._pending = bytearray()
        self._sums: Sums = np.zeros(rows, np.uint64)
        self._done = 0

    def passing(self, data: Iterable[Chunk]) -> Iterator[Chunk]:
        """The chunks of ``data``, unchanged; each is summed on its way."""
        for chunk in data:
            self._take(memoryview(chunk).cast("B"))
            yield chunk

    @property
    def sums(self) -> Sums:
        """The sums of all rows, once the whole file has been read."""
        return self._sums

    def _take(self, chunk: memoryview) -> None:
        skipped = min(self._skip, len(chunk))
        self._skip -= skipped
        self._pending += chunk[skipped:]
        size, sums = self._sum_whole(self._pending)
        self._sums[self._done : self._done + len(sums)] = sums
        del self._pending[:size]
        self._done += len(sums)

    @abstractmethod
    def _sum_whole(self, data: bytearray) -> tuple[int, Sums]:
        """The bytes of the next rows that ``data`` begin with, as many as are whole, and the rows' sums."""


class EqualRowSums(RowSums):
    """Rows of ``row_bytes`` each."""

    def __init__(self, start: int, rows: int, row_bytes: int) -> None:
        super().__init__(start, rows)
        self._row_bytes = row_bytes

    def _sum_whole(self, data: bytearray) -> tuple[int, Sums]:
        count = min(len(data) // self._row_bytes, len(self._sums) - self._done)
        size = count * self._row_bytes
        if not count:
            return 0, self._sums[:0]
        return size, row_sums(np.frombuffer(data, np.uint8, size).reshape(count, -1))


class RaggedRowSums(RowSums):
    """Rows that begin ``offsets`` bytes behind ``start``."""

    def __init__(self, start: int, offsets: Index) -> None:
        super().__init__(start, len(offsets) - 1)
        self._offsets = offsets

    def _sum_whole(self, data: bytearray) -> tuple[int, Sums]:
        first = self._offsets[self._done]
        stop = int(np.searchsorted(self._offsets, first + len(data), "right"))
        offsets = self._offsets[self._done : stop] - first
        size = int(offsets[-1])
        return size, ragged_sums(np.frombuffer(data, np.uint8, size), offsets)
