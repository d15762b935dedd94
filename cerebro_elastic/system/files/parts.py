"""Parts of files. On a remote file system each part is a request, which can be repeated.

A web server that does not know the length of a file, or answers with all of it whatever part is wanted, is
asked for it once: the file is then read from a copy in the temporary folder.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from functools import lru_cache
from tempfile import NamedTemporaryFile
from typing import Any

from cerebro_elastic.system.files.place import FileSystem, Place, attempt, faults_raised

_COPIES = 16
"""The number of copies that are kept."""
_NOT_SATISFIABLE = 416


def size(place: Place) -> int:
    """The file's size in bytes."""
    known = attempt(place, lambda fs: fs.size(place.path))
    return int(known) if known is not None else os.fstat(_copy(place).fileno()).st_size


def open_read(place: Place) -> io.RawIOBase:
    """The file for reading. On a remote file system every ``read`` is one request, nothing is read ahead."""
    with faults_raised(place):
        return open(place.path, "rb", buffering=0) if place.local else _Requests(place)


def read_ranges(files: Sequence[Place], starts: Sequence[int], ends: Sequence[int]) -> list[bytes]:
    """A part of each of the files, which are of one file system: from its start to before its end. Several
    are read at once where the file system can."""
    if not files:
        return []
    paths = [file.path for file in files]

    def answers_of(fs: FileSystem) -> list[bytes | None]:
        return list(map(_given, fs.cat_ranges(paths, starts, ends, on_error="return")))

    answers = zip(attempt(files[0], answers_of), files, starts, ends, strict=True)
    return [_part(answer, file, start, end) for answer, file, start, end in answers]


def _given(answer: bytes | Exception) -> bytes | None:
    """What the server has answered; ``None`` if it refuses to give parts of files."""
    if not isinstance(answer, Exception):
        return answer
    if getattr(answer, "status", None) == _NOT_SATISFIABLE:
        return None
    raise answer


def _part(answer: bytes | None, file: Place, start: int, end: int) -> bytes:
    """The part of the file: what the server has answered, unless that is all of it."""
    if answer is not None and len(answer) <= end - start:
        return answer
    return os.pread(_copy(file).fileno(), end - start, start)


@lru_cache(_COPIES)
def _copy(place: Place) -> Any:
    """A copy of the whole file, which is removed when nobody needs it."""
    with faults_raised(place):
        copy = NamedTemporaryFile(prefix="cerebro-")  # noqa: SIM115  # it is kept
        attempt(place, lambda fs: fs.get_file(place.path, copy.name))
        return copy


class _Requests(io.RawIOBase):
    """A remote file whose every read is a request of its own, so that it can be repeated."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._size = size(place)
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, target: Any) -> int:
        view = memoryview(target).cast("B")
        start, end = self._at, min(self._at + len(view), self._size)
        if start >= end:
            return 0
        (data,) = read_ranges([self._place], [start], [end])
        view[: len(data)] = data
        self._at += len(data)
        return len(data)
