"""An exception in a unit, told as a failure's kind and story."""

from __future__ import annotations

import traceback

import torch

from cerebro_elastic.core.values import Attempt, Failure, FailureKind
from cerebro_elastic.errors import CerebroError, DiskFull

_FRAMES = 6


def failure_of(attempt: Attempt, error: BaseException) -> Failure:
    """The failure that ``error`` means for ``attempt``."""
    return Failure(attempt.unit, attempt.node, attempt.token, _kind(error), _story(error))


def _kind(error: BaseException) -> FailureKind:
    if isinstance(error, DiskFull):
        return FailureKind.DISK_FULL
    # On CPU torch raises a plain RuntimeError when its allocator gets no memory.
    cpu_oom = isinstance(error, RuntimeError) and "DefaultCPUAllocator: can't allocate memory" in str(error)
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or cpu_oom:
        return FailureKind.OUT_OF_MEMORY
    return FailureKind.EXCEPTION


def _story(error: BaseException) -> str:
    """Ours explain themselves; a user's exception comes with the innermost frames."""
    if isinstance(error, CerebroError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    where = " <- ".join(f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in reversed(frames))
    return f"{type(error).__name__}: {error} (at {where})"
