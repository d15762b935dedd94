"""A place on any fsspec URL, and how its file system is used: with retries, and with our own errors.

A local file system is tried once. On a remote one an operation is repeated with growing, random pauses while
the fault may pass, for ``PATIENCE`` seconds; if the storage refuses access, the credentials are read afresh
once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

import fsspec
import tenacity
from fsspec.implementations.local import LocalFileSystem

from cerebro_elastic.system.files.faults import StorageFault, fault_of, presentable, redacted, storage_error

PATIENCE = 60.0
"""Seconds after which an operation that fails is not tried again."""
HURRY = 5.0
"""The same in a block ``in_a_hurry``."""
_patience: ContextVar[float] = ContextVar("patience", default=PATIENCE)

T = TypeVar("T")
FileSystem = Any
"""fsspec's ``AbstractFileSystem``, which has no types."""


@dataclass(frozen=True, slots=True)
class Place:
    """A URL as fsspec sees it. ``place / name`` is inside of it."""

    fs: FileSystem
    """The file system, with the options and credentials by which it was reached."""
    path: str
    """The path in the file system, without a protocol."""

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
        from cerebro_elastic.system.files import s3

        options |= s3.options()
    fs, path = fsspec.core.url_to_fs(url, **options)
    return Place(_tuned(fs), path)


@contextmanager
def in_a_hurry() -> Iterator[None]:
    """Give up after ``HURRY`` seconds in this block: people wait for its result, and can repeat it."""
    before = _patience.set(HURRY)
    try:
        yield
    finally:
        _patience.reset(before)


def attempt(place: Place, operation: Callable[[FileSystem], T]) -> T:
    """The result of ``operation`` on the place's file system, with retries if that is remote.

    Raises:
        StorageError: The storage has a fault.
        DiskFull: It has no space left.
    """
    with faults_raised(place):
        if place.local:
            return operation(place.fs)
        fs = current_file_system(place.fs)
        try:
            return _retried(operation, fs)
        except Exception as exc:
            if _fault_of(exc, fs) is not StorageFault.REFUSED:
                raise
        return _retried(operation, _with_fresh_credentials(fs))


def _retried(operation: Callable[[FileSystem], T], fs: FileSystem) -> T:
    def passes(error: BaseException) -> bool:
        return isinstance(error, Exception) and _fault_of(error, fs) is StorageFault.PASSING

    retrying = tenacity.Retrying(
        stop=tenacity.stop_after_delay(min(PATIENCE, _patience.get())),
        wait=tenacity.wait_random_exponential(multiplier=0.1, max=10),
        retry=tenacity.retry_if_exception(passes),
        reraise=True,
    )
    return retrying(operation, fs)


@contextmanager
def faults_raised(place: Place) -> Iterator[None]:
    """Raise a fault of the place's storage as ``StorageError`` or ``DiskFull``."""
    try:
        yield
    except Exception as exc:
        fault = _fault_of(exc, place.fs)
        if fault is None:
            raise
        raise storage_error(exc, fault, place, _clock_ahead(exc, place.fs)) from presentable(exc)


def _fault_of(error: Exception, fs: FileSystem) -> StorageFault | None:
    if not is_s3(fs):
        return fault_of(error)
    from cerebro_elastic.system.files import s3

    return fault_of(error, s3.fault_of)


def _clock_ahead(error: Exception, fs: FileSystem) -> float | None:
    """By how many seconds this machine's clock is ahead of the storage's, if that has answered."""
    if not is_s3(fs):
        return None
    from cerebro_elastic.system.files import s3

    return s3.clock_ahead(error)


def is_s3(fs: FileSystem) -> bool:
    """Whether the file system is s3fs."""
    return "s3" in ((fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol))


def current_file_system(fs: FileSystem) -> FileSystem:
    """The file system as fsspec has it now: its credentials may have been renewed since ``fs`` was made."""
    return _tuned(type(fs)(*fs.storage_args, **fs.storage_options))


def _with_fresh_credentials(fs: FileSystem) -> FileSystem:
    """The file system with credentials read afresh, for all later calls in this process."""
    if current_file_system(fs) is fs:  # and has not been renewed by another thread
        type(fs).clear_instance_cache()
    return current_file_system(fs)


def _tuned(fs: FileSystem) -> FileSystem:
    """An s3fs that does not repeat what botocore has repeated already (see ``s3.options``), and knows its own
    options even when botocore has changed them."""
    if is_s3(fs) and fs.retries > 1:
        fs.retries = 1
        fs.storage_options = copy.deepcopy(fs.storage_options)
    return fs
