"""What went wrong in a unit, told as a failure's kind and story."""

from __future__ import annotations

import errno
import os
import traceback
from pathlib import Path

import torch

from cerebro_elastic.core.model.attempts import Attempt, Failure, FailureKind
from cerebro_elastic.errors import CerebroError, DamagedData, DataError, DiskFull, GroupBroken, StorageError
from cerebro_elastic.stories import whole


class NotFinite(CerebroError):
    """A loss or a weight is NaN or infinite, and the recipe does not want to go on so."""


_KINDS: dict[type[BaseException], FailureKind] = {
    DiskFull: FailureKind.DISK_FULL,
    StorageError: FailureKind.STORAGE,
    DamagedData: FailureKind.DAMAGED_DATA,
    # Data missing or damaged at their source are nobody's fault in the run, and it cannot go on without them.
    DataError: FailureKind.STORAGE,
    NotFinite: FailureKind.NOT_FINITE,
    GroupBroken: FailureKind.CRASH,
    MemoryError: FailureKind.OUT_OF_MEMORY,
    torch.OutOfMemoryError: FailureKind.OUT_OF_MEMORY,
}


def failure_of(attempt: Attempt, node: str, error: BaseException, root: Path = Path()) -> Failure:
    """The failure that ``error`` on its ``node`` means for ``attempt``; ``root`` has the user's files."""
    return Failure(
        attempt.unit,
        node,
        attempt.token,
        _kind(error),
        whole(error, root),
        strategy=attempt.strategy,
        hardware=attempt.hardware,
        place=_place(error),
    )


def _kind(error: BaseException) -> FailureKind:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):  # of the user's own files
        return FailureKind.DISK_FULL
    # On CPU torch raises a plain RuntimeError when its allocator gets no memory.
    if isinstance(error, RuntimeError) and "DefaultCPUAllocator: can't allocate memory" in str(error):
        return FailureKind.OUT_OF_MEMORY
    return next((kind for what, kind in _KINDS.items() if isinstance(error, what)), FailureKind.EXCEPTION)


def _place(error: BaseException) -> str:
    """The type and innermost line of a user's exception, by which another node knows it again. What the
    world may do to anybody (files, networks, memory) has none: elsewhere it may not happen."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or _kind(error) is not FailureKind.EXCEPTION or isinstance(error, CerebroError | OSError):
        return ""
    return f"{type(error).__name__} at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}"
