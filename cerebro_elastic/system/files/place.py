"""A place on any fsspec URL, and how its file system is used: with retries, and with our own errors.

A local file system is tried once. On a remote one an operation is repeated with growing, random pauses while
the fault may pass, for ``PATIENCE`` seconds; if the storage refuses the credentials are read afresh
once.

A *fact* about a file (it is missing, it exists already, its name is impossible) leaves this package as the
Python exception that it is, and the caller interprets it. A *fault* is the storage's and has nothing to do
with the file: it becomes ``StorageError`` or ``DiskFull`` here, once for all callers.

No message shows a secret: parts of a URL before ``@`` and behind ``?`` (presigned URLs) are left out, and a
foreign exception that shows one is not given as the cause.
"""

from __future__ import annotations

import copy
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import fsspec
import tenacity
from fsspec.implementations.local import LocalFileSystem

from cerebro_elastic.errors import CerebroError, DiskFull, MissingExtra, StorageError, brief
from cerebro_elastic.registry import install_extra
from cerebro_elastic.system.addresses import place_of
from cerebro_elastic.system.files.faults import StorageFault, chance, fault_of, is_full
from cerebro_elastic.system.files.moved import here

PATIENCE = 60.0
"""Seconds after which an operation that fails is not tried again."""
HURRY = 5.0
"""The same in a block ``in_a_hurry``."""
_patience: ContextVar[float] = ContextVar("patience", default=PATIENCE)
T = TypeVar("T")
FileSystem = Any
"""fsspec's ``AbstractFileSystem``, which has no types."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Place:
    """A URL as fsspec sees it. ``place / name`` is inside of it."""

    fs: FileSystem
    """The file system, with its options and credentials."""
    path: str
    """The path in the file system, without a protocol."""
    shown: str = ""
    """Its name in messages, if it is a copy of a file at another place."""

    def __truediv__(self, name: str) -> Place:
        return Place(self.fs, f"{self.path.rstrip('/')}/{name}")

    def __str__(self) -> str:
        return self.shown or redacted(str(self.fs.unstrip_protocol(self.path)))

    @property
    def local(self) -> bool:
        """Whether this is a path of this machine's own file systems."""
        return isinstance(self.fs, LocalFileSystem)


def understood(text: str) -> str:
    """A person's path or URL as ``place_of`` has it. Raises ``StorageError`` for one that would be read as
    the path of another place."""
    try:
        return place_of(text)
    except ValueError as exc:
        raise StorageError(f"{redacted(text)} is no path or URL: {exc}") from None


def locate(url: str) -> Place:
    """The place of ``url``; a path without a protocol is local, and is looked for ``here``. Listings are not
    cached: other processes write there too. Raises ``StorageError`` as ``understood``."""
    url = understood(url)
    options: dict[str, Any] = {"use_listings_cache": False}
    if url.startswith(("s3://", "s3a://")):
        from cerebro_elastic.system.files import s3

        options |= s3.options()
    fs, path = fsspec.core.url_to_fs(url, **options)
    return Place(_tuned(fs), here(path) if isinstance(fs, LocalFileSystem) else path)


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
        wait=lambda tries: chance.uniform(0.0, min(10.0, 0.1 * 2.0 ** (tries.attempt_number - 1))),
        retry=tenacity.retry_if_exception(passes),
        reraise=True,
    )
    return retrying(operation, fs)


@contextmanager
def faults_raised(place: Place | Path) -> Iterator[None]:
    """Raise a fault of the storage as ``StorageError`` or ``DiskFull``. The message names the ``place``; for
    a path of this machine, the file that the error names."""
    try:
        yield
    except Exception as exc:
        fs = place.fs if isinstance(place, Place) else None
        fault = _fault_of(exc, fs)
        if fault is None:
            raise
        where = place if fs is not None else getattr(exc, "filename", None) or place
        raise storage_error(exc, fault, where, _clock_ahead(exc, fs)) from presentable(exc)


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
    """Whether the file system is s3fs; ``None`` is this machine's."""
    return fs is not None and "s3" in ((fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol))


def current_file_system(fs: FileSystem) -> FileSystem:
    """The file system as fsspec has it now: its credentials may have been renewed since ``fs`` was made."""
    return _tuned(type(fs)(*fs.storage_args, **fs.storage_options))


def _with_fresh_credentials(fs: FileSystem) -> FileSystem:
    """The file system with credentials read afresh, for all later calls in this process."""
    if current_file_system(fs) is fs:  # no other thread has renewed it
        type(fs).clear_instance_cache()
    return current_file_system(fs)


def _tuned(fs: FileSystem) -> FileSystem:
    """An s3fs that does not repeat botocore's retries (see ``s3.options``), and keeps its options even when
    botocore has changed them."""
    if is_s3(fs) and fs.retries > 1:
        fs.retries = 1
        fs.storage_options = copy.deepcopy(fs.storage_options)
    return fs


_ADVICE = {
    StorageFault.PASSING: "look whether the storage is up and this machine's network reaches it",
    StorageFault.REFUSED: "renew the credentials of this machine, or give them the right",
    StorageFault.FULL: "free some and run the same command again",
    StorageFault.LASTING: "look whether the URL and the settings of its storage are right",
}


_MOST_SHOWN = 1000
"""The number of characters of a foreign message that are shown."""
_CLOCKS_DIFFER = 300.0
"""The error of a clock, in seconds, from which on a storage may refuse signed requests."""
_CERTIFICATE = re.compile(r"certificate (is not yet valid|has expired)")


def storage_error(
    error: Exception, fault: StorageFault, where: object, clock_ahead: float | None = None
) -> CerebroError:
    """The error to raise for a ``fault`` at the place ``where``; ``clock_ahead`` are the seconds by which
    this machine's clock is ahead of the storage's."""
    kind = DiskFull if fault is StorageFault.FULL else StorageError
    if fault is not StorageFault.FULL:
        why = f": {_named(error)}"
    else:  # "Disk quota exceeded" and "File too large" need other remedies
        why = f" ({error.strerror})" if isinstance(error, OSError) and error.strerror else ""
    advice = _ADVICE[fault]
    if fault is StorageFault.REFUSED and abs(clock_ahead or 0.0) > _CLOCKS_DIFFER:
        advice = f"set this machine's clock, which is {_difference(clock_ahead or 0.0)} the storage's"
    elif _CERTIFICATE.search(str(error)):
        advice = f"set this machine's clock if it is not {datetime.now():%c} now, or renew the certificate"
    return kind(redacted(f"{where}: the storage {fault.value}{why}; {advice}"))


def _difference(seconds: float) -> str:
    minutes = round(abs(seconds) / 60)
    return f"{minutes // 60}:{minutes % 60:02d} h {'ahead of' if seconds > 0 else 'behind'}"


@contextmanager
def translated(kind: type[CerebroError], doing: str) -> Iterator[None]:
    """Raise an exception that is no ``CerebroError`` as ``kind``, a full disk as ``DiskFull``.

    Every format has its own exceptions, hence ``Exception``: keep the block small.
    """
    try:
        yield
    except CerebroError:
        raise
    except ImportError as exc:
        remedy = install_extra("s3") if _OF_S3.search(str(exc)) else "install it with pip"
        raise MissingExtra(f"{doing}: {exc}; {remedy}") from exc
    except Exception as exc:
        full = is_full(exc)
        reason = f"no space left; {_ADVICE[StorageFault.FULL]}" if full else _named(exc)
        raise (DiskFull if full else kind)(redacted(f"{doing}: {reason}")) from presentable(exc)


@contextmanager
def disk_full_raised(where: object) -> Iterator[None]:
    """Raise that no space is left as ``DiskFull``. The message names the file that the error names, else
    ``where``."""
    try:
        yield
    except OSError as exc:
        if not is_full(exc):
            raise
        raise storage_error(exc, StorageFault.FULL, exc.filename or where) from exc


def _named(error: Exception) -> str:
    """The error's type and message, which may quote a whole file."""
    return f"{type(error).__name__}: {brief(str(error), _MOST_SHOWN)}"


_OF_S3 = re.compile(r"s3fs|botocore")
_USER = re.compile(r"(?<=://)[^/\s@]+@")
_QUERY = re.compile(r"(\w+://[^\s'\"<>?]*)\?[^\s'\"<>]*")
_KEY = re.compile(r"\b(AKIA|ASIA)[A-Z0-9]{16}\b")


def redacted(text: str) -> str:
    """``text`` without what may be secret: passwords and queries of URLs, ids of AWS keys."""
    return _KEY.sub("***", _QUERY.sub(r"\1", _USER.sub("", text)))


def presentable(error: Exception) -> Exception | None:
    """``error``, if all that its traceback shows may be shown."""
    shown: Any = "".join(traceback.format_exception(error))
    return error if redacted(shown) == shown else None
