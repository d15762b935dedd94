"""Places on any fsspec URL, and all that is done there: each verb meets trouble in the same way.

A local file is tried once. On a remote file system a verb is repeated with growing, random pauses while the
trouble may pass, for ``PATIENCE`` seconds; if the storage refuses access, the credentials are read afresh
once. Verbs raise ``StorageError`` or ``DiskFull`` for trouble, and Python's own exceptions for facts
(``FileNotFoundError``, ...; see ``trouble``).

A local file appears under its name only when it is whole (temporary name, fsync, rename). Object
stores have that property by themselves: an object exists once its upload has been completed.
"""

from __future__ import annotations

import copy
import io
import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

import fsspec
import tenacity
from fsspec.implementations.local import LocalFileSystem

from cerebro_elastic.files.content import CHUNK, Chunk, Content, digest, fill, pour
from cerebro_elastic.files.diagnosis import trouble_of
from cerebro_elastic.files.modes import as_its_folder, make_folder
from cerebro_elastic.files.multipart import Upload
from cerebro_elastic.files.trouble import Trouble, presentable, redacted, storage_error

PATIENCE = 60.0
"""Seconds after which a verb in trouble is not tried again."""
HURRY = 5.0
"""The same where somebody waits for the answer."""
_patience: ContextVar[float] = ContextVar("patience", default=PATIENCE)

T = TypeVar("T")
FileSystem = Any
"""fsspec's ``AbstractFileSystem``, which has no types."""


@dataclass(frozen=True, slots=True)
class Place:
    """A URL as fsspec sees it: a file system and a path in it. ``place / name`` is inside of it."""

    fs: FileSystem
    path: str

    def __truediv__(self, name: str) -> Place:
        return Place(self.fs, f"{self.path.rstrip('/')}/{name}")

    def __str__(self) -> str:
        return redacted(str(self.fs.unstrip_protocol(self.path)))

    @property
    def local(self) -> bool:
        """Whether this is a path of this machine's own file systems."""
        return isinstance(self.fs, LocalFileSystem)


def locate(url: str) -> Place:
    """The place of ``url``; a path without a protocol is local. Listings are not cached: other
    processes write there too."""
    options: dict[str, Any] = {"use_listings_cache": False}
    if url.startswith(("s3://", "s3a://")):
        from cerebro_elastic.files import s3

        options |= s3.options()
    fs, path = fsspec.core.url_to_fs(url, **options)
    return Place(_tuned(fs), path)


# What is there.


def exists(place: Place) -> bool:
    return bool(_do(place, lambda fs: fs.exists(place.path)))


def size(place: Place) -> int:
    """The file's size in bytes."""
    return int(_do(place, lambda fs: fs.size(place.path)))


def sizes(folder: Place) -> dict[str, int]:
    """The sizes of all files in the folder and below, by path."""
    found = _do(folder, lambda fs: fs.find(folder.path, detail=True))
    return {path: info["size"] for path, info in found.items()}


def expand(pattern: Place, keep: Callable[[str], bool]) -> list[Place]:
    """The files that a file's name, a folder or a glob stands for, sorted; of a folder, those to ``keep``."""

    def paths(fs: FileSystem) -> list[str]:
        if fs.isdir(pattern.path):
            return [path for path in fs.ls(pattern.path, detail=False) if keep(path)]
        return [pattern.path] if fs.exists(pattern.path) else list(fs.glob(pattern.path))

    return [Place(pattern.fs, path) for path in sorted(_do(pattern, paths))]


# Reading.


def read(place: Place) -> bytes:
    """The whole file."""
    return bytes(_do(place, lambda fs: fs.cat_file(place.path)))


def open_read(place: Place) -> io.RawIOBase:
    """The file for reading. On a remote file system every ``read`` is one request, nothing is read ahead."""
    with _told(place):
        return open(place.path, "rb", buffering=0) if place.local else _Requests(place)


def chunks(place: Place) -> Iterator[bytes]:
    """The file's bytes, front to back."""
    with _told(place), open_read(place) as file:
        while chunk := file.read(CHUNK):
            yield chunk


def content(place: Place) -> Content:
    """Read the file and hash it."""
    return digest(chunks(place))


def read_into(place: Place, targets: Iterable[memoryview]) -> Content:
    """Fill ``targets`` from the file front to back; what the whole file holds."""
    with _told(place), open_read(place) as file:
        found = fill(targets, file)
    return content(place) if found is None else found  # cut short: what was read already is of no use


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
        data = _do(self._place, lambda fs: fs.cat_file(self._place.path, start=start, end=end))
        view[: len(data)] = data
        self._at += len(data)
        return len(data)


# Writing and deleting.


def write(place: Place, data: Iterable[Chunk]) -> Content:
    """Write a whole file, seen under its name when this returns. Its bytes are durable then, a local
    file's name once ``settle`` was called for its folder. ``data`` is gone over again at every try."""
    if not place.local:
        assert iter(data) is not data, "an iterator can be gone over once only"
        if "s3" in _protocols(place.fs):
            return _write_s3(place, data)
        return _do(place, lambda fs: _upload(fs, place.path, data))
    with (
        _told(place),
        replacing(place.path) as temporary,
        open(temporary, "xb", opener=as_its_folder) as file,
    ):
        written = pour(data, file)
        file.flush()
        os.fsync(file.fileno())
    return written


def _write_s3(place: Place, data: Iterable[Chunk]) -> Content:
    upload = Upload(place.path, data)
    try:
        return _do(place, upload)
    except BaseException:
        upload.abort(_present(place.fs))
        raise


@contextmanager
def replacing(path: str) -> Iterator[str]:
    """A temporary name beside the local ``path``: it becomes ``path`` when the block ends well,
    else it is removed."""
    make_folder(os.path.dirname(path))
    temporary = f"{path}.{uuid.uuid4().hex}.tmp"
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)


def settle(folder: Place) -> None:
    """Make the names in a local folder, and its own, survive a power failure; elsewhere they do already."""
    if not folder.local:
        return
    with _told(folder):
        for path in (folder.path, os.path.dirname(folder.path)):
            opened = os.open(path, os.O_RDONLY)
            try:
                os.fsync(opened)
            finally:
                os.close(opened)


def remove(place: Place) -> None:
    """Delete the file, or the folder with all that is in it; nothing happens if it is not there."""

    def gone(fs: FileSystem) -> None:
        with suppress(FileNotFoundError):
            fs.rm(place.path, recursive=True)

    _do(place, gone)


def _upload(fs: FileSystem, path: str, data: Iterable[Chunk]) -> Content:
    file = fs.open(path, "wb")
    try:
        written = pour(data, file)
        file.close()
    except BaseException:
        with suppress(AttributeError):
            file.closed = True  # else its end would put what there is under the name
        with suppress(Exception):
            file.discard()
        raise
    return written


# Trouble.


@contextmanager
def in_a_hurry() -> Iterator[None]:
    """Tell of trouble after ``HURRY`` seconds: for what people wait for, and can do again."""
    before = _patience.set(HURRY)
    try:
        yield
    finally:
        _patience.reset(before)


def _do(place: Place, verb: Callable[[FileSystem], T]) -> T:
    """What ``verb`` gives of the place's file system."""
    with _told(place):
        if place.local:
            return verb(place.fs)
        fs = _present(place.fs)
        try:
            return _patiently(verb, fs)
        except Exception as exc:
            if trouble_of(exc, _protocols(fs)) is not Trouble.REFUSED:
                raise
        return _patiently(verb, _renewed(fs))


def _patiently(verb: Callable[[FileSystem], T], fs: FileSystem) -> T:
    def passes(error: BaseException) -> bool:
        return isinstance(error, Exception) and trouble_of(error, _protocols(fs)) is Trouble.PASSING

    retrying = tenacity.Retrying(
        stop=tenacity.stop_after_delay(min(PATIENCE, _patience.get())),
        wait=tenacity.wait_random_exponential(multiplier=0.1, max=10),
        retry=tenacity.retry_if_exception(passes),
        reraise=True,
    )
    return retrying(verb, fs)


@contextmanager
def _told(place: Place) -> Iterator[None]:
    """Raise trouble as ours."""
    try:
        yield
    except Exception as exc:
        trouble = trouble_of(exc, _protocols(place.fs))
        if trouble is None:
            raise
        raise storage_error(exc, trouble, place) from presentable(exc)


def _protocols(fs: FileSystem) -> tuple[str, ...]:
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)


def _present(fs: FileSystem) -> FileSystem:
    """The file system as fsspec has it now: it may have been renewed since ``fs`` was got."""
    return _tuned(type(fs)(*fs.storage_args, **fs.storage_options))


def _renewed(fs: FileSystem) -> FileSystem:
    """The file system with credentials read afresh, for everybody who asks for it from now on."""
    if _present(fs) is fs:  # and has not been renewed by another thread
        type(fs).clear_instance_cache()
    return _present(fs)


def _tuned(fs: FileSystem) -> FileSystem:
    """An s3fs that does not repeat what botocore has repeated already (see ``s3.options``), and knows its own
    options even when botocore has changed them."""
    if "s3" in _protocols(fs) and fs.retries > 1:
        fs.retries = 1
        fs.storage_options = copy.deepcopy(fs.storage_options)
    return fs
