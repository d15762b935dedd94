"""A sum for each row: what is taken out of a file is compared with what the file held when it was checked.

The sum of a row is ``c[0] * w[0] + c[1] * w[1] + ...`` modulo 2**64, of its bytes as 64-bit words ``w`` and
fixed, odd, random ``c``. Whatever changes one word is found, always. Of damage in several words of one row a
random one is missed with a chance of 2**-64; the worst is an even number of flips that hit nothing but the
highest bits of words, which a sum modulo 2**64 cannot see. It is for accidents: it keeps no secret.
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
    """The sum of each of ``rows``, which lie in memory one after the other."""
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
    """Each row as whole words; what is missing to the last one is zero."""
    size = rows.shape[1] * rows.itemsize
    if size % _WORD.itemsize:
        padded = np.zeros((len(rows), size + -size % _WORD.itemsize), np.uint8)
        padded[:, :size] = rows.view(np.uint8)
        rows = padded
    return rows.view(_WORD)


@cache
def _factors() -> Sums:
    """The same in every release (tests hold stored sums): caches outlive releases."""
    factors: Sums = np.random.PCG64(np.random.SeedSequence(0)).random_raw(_SEGMENT) | np.uint64(1)
    return factors


class RowSums:
    """The sums of ``rows`` rows of ``row_bytes`` each, in a file that goes by in chunks and has ``start``
    bytes before them."""

    def __init__(self, start: int, rows: int, row_bytes: int) -> None:
        self._skip = start
        self._row_bytes = row_bytes
        self._pending = bytearray()
        self._sums: Sums = np.zeros(rows, np.uint64)
        self._done = 0

    def passing(self, data: Iterable[Chunk]) -> Iterator[Chunk]:
        """The chunks of ``data``, each summed when it is asked for."""
        for chunk in data:
            self._take(memoryview(chunk).cast("B"))
            yield chunk

    @property
    def sums(self) -> Sums:
        """Of all rows, when the whole file has gone by."""
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
