"""What is done with files: each operation meets the faults of its storage in the same way.

Operations raise ``StorageError`` or ``DiskFull`` for a fault of the storage, and Python's own exceptions for
facts about a file (``FileNotFoundError``, ...; see ``faults``).

A local file appears under its name only when it is whole (temporary name, fsync, rename). Object stores have
that property by themselves: an object exists once its upload has been completed.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cerebro_elastic.errors import StorageError
from cerebro_elastic.system.files.content import CHUNK, Chunk, Content, digest, fill, pour
from cerebro_elastic.system.files.faults import fault_of, storage_error
from cerebro_elastic.system.files.parts import open_read
from cerebro_elastic.system.files.place import (
    FileSystem,
    Place,
    attempt,
    current_file_system,
    faults_raised,
    is_s3,
)
from cerebro_elastic.system.ownership import as_its_folder, make_folder


def exists(place: Place) -> bool:
    """Whether the place is a file or folder."""
    return bool(attempt(place, lambda fs: fs.exists(place.path)))


def is_folder(place: Place) -> bool:
    """Whether the place is a folder."""
    return bool(attempt(place, lambda fs: fs.isdir(place.path)))


# Reading.


def read(place: Place) -> bytes:
    """The whole file."""
    return bytes(attempt(place, lambda fs: fs.cat_file(place.path)))


def chunks(place: Place) -> Iterator[bytes]:
    """The file's bytes, front to back."""
    with faults_raised(place), open_read(place) as file:
        while chunk := file.read(CHUNK):
            yield chunk


def content(place: Place) -> Content:
    """Read the file and hash it."""
    return digest(chunks(place))


def read_into(place: Place, targets: Iterable[memoryview]) -> Content:
    """Fill ``targets`` from the file, front to back; returns what the whole file holds."""
    with faults_raised(place), open_read(place) as file:
        filled = fill(targets, file)
    return content(place) if filled is None else filled  # cut short: what was read already is of no use


# Writing and deleting.


def write(place: Place, data: Iterable[Chunk]) -> Content:
    """Write a whole file, seen under its name when this returns. Its bytes are durable then, a local
    file's name once ``settle`` was called for its folder. ``data`` is gone over again at every try."""
    if not place.local:
        assert iter(data) is not data, "an iterator can be gone over once only"
        if is_s3(place.fs):
            return _write_s3(place, data)
        return attempt(place, lambda fs: _upload(fs, place.path, data))
    with (
        faults_raised(place),
        replacing(place.path) as temporary,
        open(temporary, "xb", opener=as_its_folder) as file,
    ):
        written = pour(data, file)
        file.flush()
        os.fsync(file.fileno())
    return written


def _write_s3(place: Place, data: Iterable[Chunk]) -> Content:
    from cerebro_elastic.system.files.s3 import Upload

    upload = Upload(place.path, data)
    try:
        return attempt(place, upload)
    except BaseException:
        upload.abort(current_file_system(place.fs))
        raise


@contextmanager
def _local_faults_raised(path: Path) -> Iterator[None]:
    """Raise a fault of this machine's storage as ``StorageError`` or ``DiskFull``. The message names the file
    that the error names, else ``path``."""
    try:
        yield
    except OSError as exc:
        if (fault := fault_of(exc)) is None:
            raise
        raise storage_error(exc, fault, exc.filename or path) from exc


def write_text(path: Path, text: str) -> None:
    """Write a small local file, or replace it: whole, or not at all."""
    with (
        _local_faults_raised(path),
        replacing(str(path)) as temporary,
        open(temporary, "x", encoding="utf-8", newline="", opener=as_its_folder) as file,
    ):
        file.write(text)


def append(path: Path, data: bytes, at: int) -> int:
    """Write ``data`` behind the first ``at`` bytes of a local file; returns where it ends then.

    All or nothing: what stood there was torn, and is cut off. So is what a full disk lets through.
    """
    with _local_faults_raised(path):
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


def _upload(fs: FileSystem, path: str, data: Iterable[Chunk]) -> Content:
    file = fs.open(path, "wb")
    try:
        written = pour(data, file)
        file.close()
    except BaseException:
        with suppress(AttributeError):
            file.closed = True  # else closing it would complete the upload
        with suppress(Exception):
            file.discard()
        raise
    return written
