"""Numbered records that the processes of a host share: one process makes a value, the others take it.

A record is a value's bytes, from which it comes back bit for bit: a head, the sizes of its parts, and the
parts: the value's pickle, then the content of each of its arrays and tensors, aligned as everywhere
(``aligned.py``). The head has a sum of the rest. Records are unpickled: one user's processes make and read
them, in a folder closed to others (``made_once.py``).

Records lie in segments, files to which one process each appends. The index says where each record lies. A
record's entry is written when the record is whole, so an unfinished one of a killed process is never read. A
damaged record is dropped; then a process makes it again. Several processes may keep the same record: the last
entry counts, and both are right.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from itertools import accumulate
from itertools import count as counted_from
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.reading.row_sums import Sums, row_sums
from cerebro_elastic.system.aligned import aligned_empty
from cerebro_elastic.system.cache_space import CacheSpace
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
    """The record of ``value``; the content of its arrays is not copied. Raises the exceptions of its classes
    if it cannot be pickled."""
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


def same(one: Any, other: Any) -> bool:
    """Whether two values have equal records. Raises as ``encoded``."""
    return b"".join(encoded(one)) == b"".join(encoded(other))


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


class Missing(Enum):
    """Stands for a missing value."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING

_UNIT = 64
"""Entries count places in segments in units of this many bytes."""
_SEGMENT_BIT = 40
"""An entry is the segment's number, and in the lower bits the place plus one; 0: no record."""
_MAPPED = 1 << 16
"""Records of at least this many bytes are mapped; smaller ones are copied, which is faster."""
_GROWTH = 1.1
"""Records may be larger than the first one by this factor before more room is requested."""
_VECTOR = 1000
"""The largest number of pieces that are written at once."""


class Records:
    """Up to ``count`` records in ``folder``, which this process or one that it works for keeps in use
    (``cache_space.use``). ``space`` bounds all such folders together.

    Can be sent to other processes of the host. Raises ``OSError`` if the disk has no room for the index.
    """

    def __init__(self, folder: Path, count: int, space: CacheSpace) -> None:
        self.folder = folder
        self.count = count
        self._space = space
        self._index = self._mapped_index()
        self._files: dict[int, int] = {}
        self._segment: tuple[int, int, int] | None = None
        self._reserved = 0
        self._full = False

    def __reduce__(self) -> tuple[Any, ...]:
        return Records, (self.folder, self.count, self._space)

    def __contains__(self, number: int) -> bool:
        return bool(self._index[number])

    def get(self, number: int) -> Any:
        """The value of a record, in separate memory; ``MISSING`` if the record is missing or damaged."""
        if not (entry := int(self._index[number])):
            return MISSING
        try:
            return decoded(self._read(entry >> _SEGMENT_BIT, (entry % (1 << _SEGMENT_BIT) - 1) * _UNIT))
        except (OSError, ValueError, EOFError):  # damaged, or removed
            self._index[number] = 0
            return MISSING

    def put(self, number: int, value: Any) -> bool:
        """Keep the value; whether it is kept. It is not if it cannot be pickled, or if room is lacking."""
        try:
            record = encoded(value)
            size = sum(memoryview(chunk).nbytes for chunk in record)
            if not self._has_room(size):
                return False
            segment, place = self._append(record, size)
        except Exception:  # anything in the user's class, or a full disk: the value is made again
            return False
        self._index[number] = (segment << _SEGMENT_BIT) + place // _UNIT + 1
        return True

    @property
    def differing(self) -> str:
        """The name of a function that made other values than the kept ones, which ends the keeping; "" if
        none is known."""
        try:
            return self._differing.read_text()
        except FileNotFoundError:
            return ""

    def distrust(self, what: str) -> None:
        """Let no process keep or take these records any more, since the function named ``what`` has made
        other ones."""
        with suppress(OSError):  # a full disk: a later test will write it
            self._differing.write_text(what)

    @property
    def _differing(self) -> Path:
        return self.folder / "differing"

    def close(self) -> None:
        for file in [*self._files.values(), *([self._segment[1]] if self._segment else [])]:
            os.close(file)
        self._files, self._segment = {}, None

    __del__ = close

    def _mapped_index(self) -> NDArray[np.uint64]:
        file = os.open(self.folder / "index", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.posix_fallocate(
                file, 0, 8 * self.count
            )  # to write to a map of a file with holes may end a process
            return np.frombuffer(mmap.mmap(file, 8 * self.count), np.uint64)
        finally:
            os.close(file)

    def _path(self, segment: int) -> Path:
        return self.folder / f"{segment:06d}.segment"

    def _read(self, segment: int, place: int) -> memoryview:
        """The record's bytes, writable."""
        if segment not in self._files:
            self._files[segment] = os.open(self._path(segment), os.O_RDONLY)
        file = self._files[segment]
        size = record_bytes(os.pread(file, HEAD_BYTES, place))
        if place + size > os.fstat(file).st_size:
            raise EOFError(segment)
        if size >= _MAPPED:
            return memoryview(mmap.mmap(file, size, access=mmap.ACCESS_COPY, offset=place))
        record = memoryview(aligned_empty((size,), np.dtype(np.uint8)))  # type: ignore[arg-type]
        if os.preadv(file, [record], place) != size:
            raise EOFError(segment)
        return record

    def _append(self, record: Sequence[Chunk], size: int) -> tuple[int, int]:
        number, file, end = self._segment or self._new_segment()
        aligned = mmap.ALLOCATIONGRANULARITY if size >= _MAPPED else _UNIT
        place = end + -end % aligned
        self._segment = number, file, place + size
        pieces = record if len(record) <= _VECTOR else [b"".join(record)]
        written = os.pwritev(file, pieces, place)
        if written != size:
            raise OSError(f"{written} of {size} bytes were written")
        return number, place

    def _new_segment(self) -> tuple[int, int, int]:
        for number in counted_from():
            with suppress(FileExistsError):
                file = os.open(self._path(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                return number, file, 0
        raise AssertionError

    def _has_room(self, size: int) -> bool:
        """Whether the bytes of one more record fit into the folder's reservation. More is reserved if need
        be: for as many records of this size as are missing."""
        present = sum(entry.stat().st_size for entry in os.scandir(self.folder))
        if present + size > self._reserved and not self._full:
            missing = self.count - int(np.count_nonzero(self._index))
            wanted = present + int(max(missing, 1) * size * _GROWTH) + mmap.ALLOCATIONGRANULARITY
            self._reserved = self._space.reserve(self.folder, wanted)
            self._full = self._reserved < wanted
        return present + size <= self._reserved
