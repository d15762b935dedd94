"""How a batch or a row becomes bytes, and comes back bit for bit.

A record is a head, the sizes of its parts, and the parts: the value's pickle, then the content of each of its
arrays and tensors, aligned as everywhere (``aligned.py``). The head has a sum of the rest. Records are
unpickled: one user's processes make and read them, in a folder closed to others (``made_batches.py``).
"""

from __future__ import annotations

import io
import pickle
import struct
import sys
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.row_sums import Sums, row_sums
from cerebro_elastic.system.files import Chunk

_HEAD = struct.Struct("<8sQQQ")
"""The mark, the sum of all parts and of their sizes, the bytes behind the head, and the number of parts."""
_MARK = b"cerebro1"
_ALIGNED = 64
HEAD_BYTES = _ALIGNED
"""The bytes of a record's head."""
_BLOCK = 1 << 12
"""Bytes that are summed as one row: the fastest size."""


def encoded(value: Any) -> list[Chunk]:
    """The record of ``value``; the content of its arrays is not copied. Raises whatever its classes raise if
    it cannot be pickled."""
    arrays: list[memoryview] = []
    pickled = io.BytesIO()
    _Pickler(pickled, arrays).dump(value)
    parts: list[Chunk] = [pickled.getbuffer(), *arrays]
    sizes = np.array([memoryview(part).nbytes for part in parts], np.uint64)
    content = [chunk for part in (sizes.data, *parts) for chunk in (part, bytes(_filling(part)))]
    total = sum(memoryview(chunk).nbytes for chunk in content)
    head = _HEAD.pack(_MARK, _sum_of([sizes, *map(_as_bytes, parts)]), total, len(parts))
    return [head.ljust(HEAD_BYTES, b"\0"), *content]


def record_bytes(head: Chunk) -> int:
    """The bytes of the record that begins with ``head``. Raises ``ValueError`` if it is no record's."""
    if len(head) < HEAD_BYTES or head[: len(_MARK)] != _MARK:
        raise ValueError("a record does not begin as one")
    _, _, total, _ = _HEAD.unpack_from(head)
    return HEAD_BYTES + int(total)


def decoded(record: memoryview) -> Any:
    """The value of a record. Its arrays lie in the memory of ``record``, which must be writable.

    Raises ``ValueError`` for a damaged record.
    """
    _, expected, total, count = _HEAD.unpack_from(record)
    content = record[HEAD_BYTES:]
    if content.nbytes != total or 8 * count > total:
        raise ValueError("a record has lost its end")
    sizes = np.frombuffer(content, np.uint64, count)
    places = accumulate(size + _filling(size) for size in (8 * count, *sizes.tolist()))
    parts = [content[place : place + size] for place, size in zip(places, sizes.tolist(), strict=False)]
    if _sum_of([sizes, *map(_as_bytes, parts)]) != expected:
        raise ValueError("a record is damaged")
    return pickle.loads(parts[0], buffers=parts[1:])


class _Pickler(pickle.Pickler):
    """Keeps the content of arrays and tensors out of the pickle."""

    def __init__(self, file: io.BytesIO, arrays: list[memoryview]) -> None:
        super().__init__(file, protocol=5, buffer_callback=lambda array: arrays.append(array.raw()))

    def reducer_override(self, value: Any) -> Any:
        if "torch" not in sys.modules:
            return NotImplemented
        from cerebro_elastic.system.torch_internals import reduced_in_place

        return reduced_in_place(value)


def _filling(part: Chunk | int) -> int:
    """How many bytes follow a part, so that the next one is aligned."""
    return -(part if isinstance(part, int) else memoryview(part).nbytes) % _ALIGNED


def _as_bytes(part: Chunk) -> NDArray[np.uint8]:
    return np.frombuffer(part, np.uint8)


def _sum_of(parts: Sequence[NDArray[Any]]) -> int:
    return int(row_sums(np.concatenate([_sums(part.view(np.uint8)) for part in parts])[None])[0])


def _sums(part: NDArray[np.uint8]) -> Sums:
    whole = len(part) - len(part) % _BLOCK
    blocks, rest = part[:whole].reshape(-1, _BLOCK), part[whole:].reshape(1, -1)
    sums = [row_sums(rows) for rows in (blocks, rest) if rows.size]
    return np.concatenate([np.zeros(1, np.uint64), *sums])
