"""Classifies errors of file systems by the state of the storage, and so whether another try makes sense."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from enum import Enum

from cerebro_elastic.errors import CerebroError

chance = random.Random()
"""The random generator of the storage and its libraries. ``random``'s own generator is the unit's: its state
is a part of the config's, and a save or a fetch beside the unit must not change it."""

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""No space on the disk, in the user's quota, or within the limit on the size of a file (``ulimit -f``)."""
_FACTS = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError)
_MISTAKES = (ImportError, ValueError, TypeError, LookupError, AttributeError, RuntimeError, MemoryError)


class StorageFault(Enum):
    """The state of the storage, and so whether another try makes sense."""

    PASSING = "cannot be reached"
    REFUSED = "refuses access"
    FULL = "has no space left"
    LASTING = "cannot do it"


def is_full(error: BaseException) -> bool:
    """Whether ``error`` says that no space is left."""
    return isinstance(error, OSError) and error.errno in FULL


def fault_of(
    error: Exception, of_backend: Callable[[Exception], StorageFault | None] | None = None
) -> StorageFault | None:
    """The fault of a file system that ``error`` shows.

    Args:
        error: The error of an operation.
        of_backend: The fault that an exception of the file system's library shows.

    Returns:
        ``None`` if ``error`` is a fact about a file, or a mistake of the caller's.
    """
    if isinstance(error, (CerebroError, *_FACTS)):
        return None
    if is_full(error):
        return StorageFault.FULL
    fault = of_backend(error) if of_backend is not None else None
    if fault is not None:
        return fault
    if isinstance(error, PermissionError):
        return StorageFault.REFUSED
    if isinstance(status := getattr(error, "status", None), int):  # an answer over HTTP (aiohttp)
        return _fault_by_status(status)
    # Every backend has its own exceptions for a network that fails.
    return None if isinstance(error, _MISTAKES) else StorageFault.PASSING


def _fault_by_status(status: int) -> StorageFault:
    if status in (401, 403, 407):
        return StorageFault.REFUSED
    passes = status >= 500 or status in (408, 425, 429)  # too slow, too early, too many requests
    return StorageFault.PASSING if passes else StorageFault.LASTING
