"""The content of files, in chunks, and hashed in the same pass."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from io import RawIOBase
from typing import BinaryIO, Self, TypeAlias

CHUNK = 8 << 20
"""Bytes read, hashed or written at a time."""

Chunk: TypeAlias = bytes | memoryview


@dataclass(frozen=True, slots=True)
class Content:
    """A file's content."""

    bytes: int
    """Its size."""
    sha256: str
    """Its sha256, in hex."""

    def __str__(self) -> str:
        return f"{self.bytes} bytes with sha256 {self.sha256}"


class Sha256:
    """sha256 in a thread beside the file's reading or writing; at most one chunk is in flight."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._bytes = 0
        self._thread = ThreadPoolExecutor(1)
        self._pending: Future[None] | None = None

    def update(self, chunk: Chunk) -> None:
        """Take ``chunk``, which must not change before the next call of a method."""
        self._wait()
        self._bytes += len(chunk)
        if len(chunk) < CHUNK // 64:  # the hand-over would cost more than it saves
            self._hash.update(chunk)
        else:
            self._pending = self._thread.submit(self._hash.update, chunk)

    def content(self) -> Content:
        """The digest of all chunks so far."""
        self._wait()
        return Content(self._bytes, self._hash.hexdigest())

    def _wait(self) -> None:
        if self._pending is not None:
            self._pending.result()
            self._pending = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()


Hashing: TypeAlias = Callable[[], Sha256]
"""Makes a hasher for a file: sha256, or another kind."""


def pieces(data: Chunk) -> Iterator[memoryview]:
    """``data`` in chunks, without a copy."""
    view = memoryview(data).cast("B")
    return (view[start : start + CHUNK] for start in range(0, len(view), CHUNK))


def digest(data: Iterable[Chunk], hashing: Hashing = Sha256) -> Content:
    """The content of a file of ``data``."""
    with hashing() as sha256, _iterated(data) as chunks:
        for chunk in chunks:
            sha256.update(chunk)
        return sha256.content()


def pour(data: Iterable[Chunk], file: BinaryIO, hashing: Hashing = Sha256) -> Content:
    """Write ``data`` into an open file, hashing it on the way."""
    with hashing() as sha256, _iterated(data) as chunks:
        for chunk in chunks:
            for piece in pieces(chunk):
                sha256.update(piece)
                file.write(piece)
        return sha256.content()


@contextmanager
def _iterated(data: Iterable[Chunk]) -> Iterator[Iterator[Chunk]]:
    """``data``, front to back. A generator ends with the block, also where a full disk cuts it short: the
    error's traceback would keep it, and the threads that read for it."""
    chunks = iter(data)
    try:
        yield chunks
    finally:
        if isinstance(chunks, Generator):
            chunks.close()


def fill(targets: Iterable[memoryview], file: RawIOBase, hashing: Hashing = Sha256) -> Content | None:
    """Fill ``targets`` from an open file, front to back. Returns the content of the whole file, or ``None``
    if it ends before they are full."""
    with hashing() as sha256:
        for target in targets:
            for piece in pieces(target):
                if not _fill(piece, file):
                    return None
                sha256.update(piece)
        while chunk := file.read(CHUNK):
            sha256.update(chunk)
        return sha256.content()


def _fill(target: memoryview, file: RawIOBase) -> bool:
    """Fill ``target`` from ``file``; returns whether that had enough bytes."""
    filled = 0
    while filled < len(target) and (count := file.readinto(target[filled:])):
        filled += count
    return filled == len(target)
