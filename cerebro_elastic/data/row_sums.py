"""A sum for each row: rows that are read from a file are compared with what it held when it was checked.

The sum of a row is ``c[0] * w[0] + c[1] * w[1] + ...`` modulo 2**64, of its bytes as 64-bit words ``w`` and
fixed, odd, random ``c``. Damage in one word is always found. Random damage in several words of one row is
missed with a chance of 2**-64; the worst case is an even number of flips of the highest bits of words alone,
which a sum modulo 2**64 cannot see. The sums are made against accidents, not against attacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.files import Chunk

Sums = NDArray[np.uint64]

_WORD = np.dtype("<u8")
_SEGMENT = 1 << 16
"""Words that are summed at once: a longer row is folded, so that its factors stay in a cache."""
_FOLD = np.uint64(0x9E3779B97F4A7C15)


def row_sums(rows: NDArray[Any]) -> Sums:
    """The sum of each of ``rows``, a contiguous array."""
    words = _words(rows.reshape(len(rows), -1))
    sums = _sum(words[:, :_SEGMENT])
    for start in range(_SEGMENT, words.shape[1], _SEGMENT):
        sums = sums * _FOLD + _sum(words[:, start : start + _SEGMENT])
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


class RowSums:
    """The sums of the rows of a file that is read in chunks.

    Args:
        start: Bytes of the file before the first row.
        rows: Number of rows.
        row_bytes: Bytes of a row.
    """

    def __init__(self, start: int, rows: int, row_bytes: int) -> None:
        self._skip = start
        self._row_bytes = row_bytes
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
        count = min(len(self._pending) // self._row_bytes, len(self._sums) - self._done)
        if count:
            rows = np.frombuffer(self._pending, np.uint8, count * self._row_bytes)
            self._sums[self._done : self._done + count] = row_sums(rows.reshape(count, -1))
            del rows  # else the bytes could not be given up
            del self._pending[: count * self._row_bytes]
            self._done += count
