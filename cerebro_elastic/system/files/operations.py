"""Operations on files: each meets the faults of its storage in the same way.

Operations raise ``StorageError`` or ``DiskFull`` for a fault of the storage, and Python's own exceptions for
facts about a file (``FileNotFoundError``, ...; see ``place``).

A local file appears under its name only when it is whole (temporary name, fsync, rename). Object stores have
that property anyway: an object exists once its upload is complete.
"""

from __future__ import annotations

import io
import os
import platform
import uuid
import weakref
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import cache, lru_cache
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryFile, mkstemp
from typing import Any

from fsspec.implementations.local import LocalFileSystem

from cerebro_elastic.errors import StorageError
from cerebro_elastic.system.files.content import CHUNK, Chunk, Content, Hashing, Sha256, digest, fill, pour
from cerebro_elastic.system.files.place import (
    FileSystem,
    Place,
    attempt,
    current_file_system,
    disk_full_raised,
    faults_raised,
    is_s3,
)
from cerebro_elastic.system.ownership import as_its_folder, make_folder

_ABANDONED_SECONDS = 86400.0
"""The age at which another machine's unfinished file counts as abandoned."""


def exists(place: Place) -> bool:
    """Whether the place is a file or folder."""
    return bool(attempt(place, lambda fs: fs.exists(place.path)))


def is_folder(place: Place) -> bool:
    return bool(attempt(place, lambda fs: fs.isdir(place.path)))


# Reading.


def read(place: Place) -> bytes:
    """The whole file."""
    return bytes(attempt(place, lambda fs: fs.cat_file(place.path)))


def chunks(place: Place) -> Iterator[bytes]:
    """The file's bytes, front to back."""
    with faults_raised(place), _open_in_order(place) as file:
        while chunk := file.read(CHUNK):
            yield chunk


def content(place: Place, hashing: Hashing = Sha256) -> Content:
    """Read the file and hash it."""
    return digest(chunks(place), hashing)


def read_into(place: Place, targets: Iterable[memoryview], hashing: Hashing = Sha256) -> Content:
    """Fill ``targets`` from the file, front to back; returns the content of the whole file."""
    with faults_raised(place), _open_in_order(place) as file:
        filled = fill(targets, file, hashing)
    # If it is cut short, its first part is of no use.
    return content(place, hashing) if filled is None else filled


# Writing and deleting.


def write(place: Place, data: Iterable[Chunk], hashing: Hashing = Sha256) -> Content:
    """Write a whole file, seen under its name when this returns. Its bytes are durable then, a local
    file's name once ``settle`` was called for its folder. ``data`` is gone over again at every try."""
    if not place.local:
        assert iter(data) is not data, "an iterator can be gone over once only"
        if is_s3(place.fs):
            return _write_s3(place, data, hashing)
        return attempt(place, lambda fs: _upload(fs, place.path, data, hashing))
    with (
        faults_raised(place),
        replacing(place.path) as temporary,
        open(temporary, "xb", opener=as_its_folder) as file,
    ):
        written = pour(data, file, hashing)
        file.flush()
        os.fsync(file.fileno())
    return written


def _write_s3(place: Place, data: Iterable[Chunk], hashing: Hashing) -> Content:
    from cerebro_elastic.system.files.s3 import Upload

    upload = Upload(place.path, data, hashing)
    try:
        return attempt(place, upload)
    except BaseException:
        upload.abort(current_file_system(place.fs))
        raise


def create(place: Place, data: bytes) -> bool:
    """Write a small file unless its name exists. Returns whether this process has written it. Of several that
    write it at one moment exactly one has, where the storage can do that: local disks, network mounts and S3
    can; a storage with neither ``If-None-Match`` nor links may let all of them."""
    if not place.local:
        return bool(attempt(place, lambda fs: _create(fs, place.path, data)))
    make_folder(os.path.dirname(place.path))
    temporary = f"{place.path}.{_this_machine()}-{uuid.uuid4().hex}.tmp"
    with faults_raised(place):
        try:
            with open(temporary, "xb", opener=as_its_folder) as file:
                file.write(data)
            try:
                os.link(temporary, place.path)  # whole, or not at all
            except OSError:  # a file system without links; the numbers of its errors differ
                with open(place.path, "xb", opener=as_its_folder) as file:
                    file.write(data)
        except FileExistsError:
            return False
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
    return True


def _create(fs: FileSystem, path: str, data: bytes) -> bool:
    if is_s3(fs):
        from cerebro_elastic.system.files import s3

        return s3.create(fs, path, data)
    try:
        fs.pipe_file(path, data, mode="create")
    except FileExistsError:
        return False
    return True


def copy(source: Place, target: Place) -> None:
    """Make ``target`` the same file as ``source``, which never changes: by a link where both are on one local
    disk. It replaces a present file."""
    if source.local and target.local:
        with suppress(OSError), replacing(target.path) as temporary:
            os.link(source.path, temporary)
            return
    write(target, FileChunks(source))


class FileChunks:
    """A file's bytes, which can be iterated again."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def __iter__(self) -> Iterator[bytes]:
        return chunks(self._place)


def write_text(path: Path, text: str) -> None:
    """Write a small local file, or replace it: whole, or not at all."""
    with (
        faults_raised(path),
        replacing(str(path)) as temporary,
        open(temporary, "x", encoding="utf-8", newline="", opener=as_its_folder) as file,
    ):
        file.write(text)


def append(path: Path, data: bytes, at: int) -> int:
    """Write ``data`` behind the first ``at`` bytes of a local file; returns where it ends then.

    All or nothing: a torn rest is cut off. So is the part that a full disk lets through.
    """
    with faults_raised(path):
        file = as_its_folder(str(path), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
        try:
            before = os.fstat(file).st_size
            if before < at:
                raise StorageError(
                    f"{path} has {before} bytes and had {at}: another program has cut it; restore it from a "
                    "copy, and run the same command again"
                )
            if before > at:
                os.ftruncate(file, at)
            _write_at(file, data, at)
        finally:
            os.close(file)
    return at + len(data)


def _write_at(file: int, data: bytes, at: int) -> None:
    end = at + len(data)
    try:
        while data:
            data = data[os.pwrite(file, data, end - len(data)) :]
    except BaseException:
        with suppress(OSError):
            os.ftruncate(file, at)  # takes no space
        raise


@contextmanager
def replacing(path: str) -> Iterator[str]:
    """A temporary name beside the local ``path``: it becomes ``path`` when the block ends well,
    else it is removed."""
    with temporary_beside(path) as temporary:
        yield temporary
        os.replace(temporary, path)


@contextmanager
def temporary_beside(path: str) -> Iterator[str]:
    """A temporary name beside the local ``path``, for a file that is removed when the block ends."""
    make_folder(os.path.dirname(path))
    temporary = f"{path}.{_this_machine()}-{uuid.uuid4().hex}.tmp"
    try:
        yield temporary
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)


def remove_leftovers(folder: Path) -> None:
    """Remove the files that killed processes left of ``replacing`` in a folder that the caller has locked.

    On network mounts a lock may not hold for other machines: their files are removed after a day without a
    write.
    """
    for leftover in folder.glob("*.tmp"):
        with suppress(FileNotFoundError):
            own = f".{_this_machine()}-" in leftover.name
            if own or _clock_of(folder) - leftover.stat().st_mtime > _ABANDONED_SECONDS:
                leftover.unlink()


def _clock_of(folder: Path) -> float:
    """The time by the clock of the folder's file system."""
    with TemporaryFile(dir=folder) as file:
        return os.fstat(file.fileno()).st_mtime


@cache
def _this_machine() -> str:
    """Names the kernel that grants locks, until it restarts."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
    except OSError:
        return platform.node().replace("-", "")


def settle(folder: Place) -> None:
    """Make the names in a local folder, and its own, survive a power failure; elsewhere they do already."""
    if not folder.local:
        return
    with faults_raised(folder):
        for path in (folder.path, os.path.dirname(folder.path)):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def remove(place: Place) -> None:
    """Delete the file, or the folder with all that is in it; nothing happens if it does not exist."""

    def delete(fs: FileSystem) -> None:
        with suppress(FileNotFoundError):
            fs.rm(place.path, recursive=True)

    attempt(place, delete)


def _upload(fs: FileSystem, path: str, data: Iterable[Chunk], hashing: Hashing) -> Content:
    file = fs.open(path, "wb")
    try:
        written = pour(data, file, hashing)
        file.close()
    except BaseException:
        with suppress(AttributeError):
            file.closed = True  # else closing it would complete the upload
        with suppress(Exception):
            file.discard()
        raise
    return written


_REQUESTS_AHEAD = 3
"""The number of chunks that are on their way while the one before is used. One request at a time leaves the
link idle for its latency, and one connection to an object store is slower than a fast link."""
_COPIES = 16
"""The number of copies that are kept."""
_NOT_SATISFIABLE = 416


def size(place: Place) -> int:
    """The file's size in bytes."""
    known = attempt(place, lambda fs: fs.size(place.path))
    return int(known) if known is not None else os.stat(_copy(place).path).st_size


def open_read(place: Place) -> io.RawIOBase:
    """The file for reading. On a remote file system every ``read`` is one request, nothing is read ahead."""
    with faults_raised(place):
        return open(place.path, "rb", buffering=0) if place.local else _Requests(place)


def open_buffered(place: Place, ahead: int = CHUNK) -> io.BufferedReader[Any]:
    """The file for reading; ``ahead`` is the number of bytes that are read ahead."""
    return io.BufferedReader(open_read(place), ahead)


def read_ranges(files: Sequence[Place], starts: Sequence[int], ends: Sequence[int]) -> list[bytes]:
    """A part of each of the files, which are of one file system: from its start to before its end. Several
    are read at once where the file system can."""
    if not files:
        return []
    if files[0].local:
        with faults_raised(files[0]):
            return list(_local_ranges([file.path for file in files], starts, ends))
    paths = [file.path for file in files]

    def answers_of(fs: FileSystem) -> list[bytes | None]:
        return list(map(_given, fs.cat_ranges(paths, starts, ends, on_error="return")))

    answers = zip(attempt(files[0], answers_of), files, starts, ends, strict=True)
    return [_part(answer, file, start, end) for answer, file, start, end in answers]


def _local_ranges(paths: Sequence[str], starts: Sequence[int], ends: Sequence[int]) -> Iterator[bytes]:
    """Each part in turn; a file is opened once for the parts of it that follow one another."""
    for path, parts in groupby(zip(paths, starts, ends, strict=True), key=lambda part: part[0]):
        with open(path, "rb") as file:
            for _, start, end in parts:
                file.seek(start)
                yield file.read(end - start)


def _given(answer: bytes | Exception) -> bytes | None:
    """The server's answer; ``None`` if it refuses to give parts of files."""
    if not isinstance(answer, Exception):
        return answer
    if getattr(answer, "status", None) == _NOT_SATISFIABLE:
        return None
    raise answer


def _part(answer: bytes | None, file: Place, start: int, end: int) -> bytes:
    """The part of the file: the server's answer, unless that is the whole file."""
    if answer is not None and len(answer) <= end - start:
        return answer
    return next(_local_ranges([_copy(file).path], [start], [end]))


def copied(place: Place) -> Place:
    """A copy of the whole file on this machine, which is removed when nothing refers to the returned
    object."""

    def copy_from(fs: FileSystem) -> None:
        with disk_full_raised(f"{os.path.dirname(path)} (TMPDIR), where {place} is copied to"):
            fs.get_file(place.path, path)

    with faults_raised(place):
        file, path = mkstemp(prefix="cerebro-")
        os.close(file)
        copy = Place(LocalFileSystem(), path, str(place))
        weakref.finalize(copy, Path(path).unlink, missing_ok=True)
        attempt(place, copy_from)
        return copy


_copy = lru_cache(_COPIES)(copied)


def _open_in_order(place: Place) -> io.RawIOBase:
    """The file, for reading front to back. The next part of a remote file is fetched ahead."""
    return open_read(place) if place.local else _Yielded(_requested_ahead(place))


def _requested_ahead(place: Place) -> Generator[bytes, None, None]:
    length = size(place)

    def chunk(start: int) -> bytes:
        return read_ranges([place], [start], [min(start + CHUNK, length)])[0]

    requests: deque[Future[bytes]] = deque()
    with ThreadPoolExecutor(_REQUESTS_AHEAD) as threads:
        try:
            for start in range(0, length, CHUNK):
                requests.append(threads.submit(copy_context().run, chunk, start))
                # The first one alone: if the server gives no parts, it makes the copy for all others.
                if not start or len(requests) > _REQUESTS_AHEAD:
                    yield requests.popleft().result()
            while requests:
                yield requests.popleft().result()
        finally:
            for request in requests:
                request.cancel()


class _Yielded(io.RawIOBase):
    """A file of the bytes that a generator yields."""

    def __init__(self, generator: Generator[bytes, None, None]) -> None:
        self._generator = generator
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        if not self._rest:
            self._rest = memoryview(next(self._generator, b""))
        count = min(len(target), len(self._rest))
        target[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def close(self) -> None:
        self._generator.close()
        super().close()


class _Requests(io.RawIOBase):
    """A remote file whose every read is a separate request, so that it can be repeated."""

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
