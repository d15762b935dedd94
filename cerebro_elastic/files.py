"""Files on any fsspec URL: read and written in chunks, and hashed in the same pass.

A local file appears under its name only when it is whole (temporary name, fsync, rename). Object
stores have that property by themselves: an object exists once its upload has been completed.
"""

from __future__ import annotations

import errno
import hashlib
import os
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, BinaryIO, Self, TypeAlias

import fsspec
from fsspec.implementations.local import LocalFileSystem

from cerebro_elastic.errors import CerebroError, DiskFull, MissingExtra

CHUNK = 8 << 20
"""Bytes read, hashed or written at a time."""

Chunk: TypeAlias = bytes | memoryview


@dataclass(frozen=True, slots=True)
class Content:
    """What a file holds: its size in bytes and its sha256, in hex."""

    bytes: int
    sha256: str

    def __str__(self) -> str:
        return f"{self.bytes} bytes with sha256 {self.sha256}"


@dataclass(frozen=True, slots=True)
class Place:
    """A URL as fsspec sees it: a file system and a path in it. ``place / name`` is inside of it."""

    fs: Any
    path: str

    def __truediv__(self, name: str) -> Place:
        return Place(self.fs, f"{self.path.rstrip('/')}/{name}")

    def __str__(self) -> str:
        return str(self.fs.unstrip_protocol(self.path))

    @property
    def local(self) -> bool:
        """Whether this is a path of this machine's own file systems."""
        return isinstance(self.fs, LocalFileSystem)


@contextmanager
def translated(kind: type[CerebroError], doing: str) -> Iterator[None]:
    """Raise what a file system raises as ``kind``, a full disk as ``DiskFull``.

    Every fsspec backend has exceptions of its own, hence ``Exception``: keep the block small.
    """
    try:
        yield
    except CerebroError:
        raise
    except ImportError as exc:
        raise MissingExtra(f"{doing}: {exc}; for s3:// URLs: pip install 'cerebro-elastic[s3]'") from exc
    except OSError as exc:
        if exc.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(f"{doing}: no space left; free some and run the same command again") from exc
        raise kind(f"{doing}: {type(exc).__name__}: {exc}") from exc
    except Exception as exc:
        raise kind(f"{doing}: {type(exc).__name__}: {exc}") from exc


def locate(url: str) -> Place:
    """The place of ``url``; a path without a protocol is local. Listings are not cached: other
    processes write there too."""
    fs, path = fsspec.core.url_to_fs(url, use_listings_cache=False)
    return Place(fs, path)


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
        """Of all chunks so far."""
        self._wait()
        return Content(self._bytes, self._hash.hexdigest())

    def _wait(self) -> None:
        if self._pending is not None:
            self._pending.result()
            self._pending = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown()


def pieces(data: Chunk) -> Iterator[memoryview]:
    """``data`` in chunks, without a copy."""
    view = memoryview(data).cast("B")
    return (view[start : start + CHUNK] for start in range(0, len(view), CHUNK))


def open_read(place: Place) -> BinaryIO:
    """The file for reading front to back; every ``read`` is one request, nothing is read ahead."""
    file: BinaryIO = place.fs.open(place.path, "rb", cache_type="none")
    return file


def chunks(place: Place) -> Iterator[bytes]:
    """The file's bytes, front to back."""
    with open_read(place) as file:
        while chunk := file.read(CHUNK):
            yield chunk


def digest(data: Iterable[Chunk]) -> Content:
    """What a file of ``data`` would hold."""
    with Sha256() as sha256:
        for chunk in data:
            sha256.update(chunk)
        return sha256.content()


def content(place: Place) -> Content:
    """Read the file and hash it."""
    return digest(chunks(place))


def pour(data: Iterable[Chunk], file: BinaryIO) -> Content:
    """Write ``data`` into an open file, hashing it on the way."""
    with Sha256() as sha256:
        for chunk in data:
            for piece in pieces(chunk):
                sha256.update(piece)
                file.write(piece)
        return sha256.content()


@contextmanager
def replacing(path: str) -> Iterator[str]:
    """A temporary name beside the local ``path``: it becomes ``path`` when the block ends well,
    else it is removed."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = f"{path}.{uuid.uuid4().hex}.tmp"
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)


def write(place: Place, data: Iterable[Chunk]) -> Content:
    """Write a whole file, seen under its name when this returns. Its bytes are durable then, a local
    file's name once ``settle`` was called for its folder."""
    if not place.local:
        with place.fs.open(place.path, "wb") as file:
            return pour(data, file)
    with replacing(place.path) as temporary, open(temporary, "xb") as file:
        written = pour(data, file)
        file.flush()
        os.fsync(file.fileno())
    return written


def settle(folder: Place) -> None:
    """Make the names in a local folder survive a power failure; elsewhere they do already."""
    if not folder.local:
        return
    opened = os.open(folder.path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
