"""From an exception in a unit to the failure that is recorded."""

from __future__ import annotations

import os
import re
import traceback
from pathlib import Path

from cerebro_elastic.core.model.attempts import Attempt, Failure, FailureKind
from cerebro_elastic.errors import CerebroError, DamagedData, DataError, DiskFull, GroupBroken, StorageError
from cerebro_elastic.system.explanations import explain_error_with_frames, message_of
from cerebro_elastic.system.files import is_full


class NotFinite(CerebroError):
    """A loss or a weight is NaN or infinite, and the recipe says to fail then."""


_KINDS: dict[type[BaseException], FailureKind] = {
    DiskFull: FailureKind.DISK_FULL,
    StorageError: FailureKind.STORAGE,
    DamagedData: FailureKind.DAMAGED_DATA,
    # Data are missing or damaged at their source: no unit is at fault, and the run cannot continue without
    # them.
    DataError: FailureKind.STORAGE,
    NotFinite: FailureKind.NOT_FINITE,
    GroupBroken: FailureKind.CRASH,
    MemoryError: FailureKind.OUT_OF_MEMORY,
}


_WORKER_LOST = re.compile(r"DataLoader worker \(pid.*(killed by signal|exited unexpectedly)", re.DOTALL)
"""Torch's exception when a process that makes batches has died."""


_NO_MEMORY = ("DefaultCPUAllocator: can't allocate memory", "RESOURCE_EXHAUSTED", " out of memory")
"""Messages of plain errors if an allocator gets no memory: torch's on the CPU, XLA's, Apple's and other
makers'. Torch's for CUDA raises ``torch.OutOfMemoryError``; a rank may have no torch."""


def failure_of(attempt: Attempt, node: str, error: BaseException, root: Path = Path()) -> Failure:
    """The failure of ``attempt`` by ``error`` on ``node``. ``root`` is the folder of the user's files."""
    story = explain_error_with_frames(error, root)
    if _is_worker_lost(error):
        story = (
            "a process that makes batches (`workers`) died, perhaps for want of memory: use fewer `workers`, "
            f"or a smaller `prefetch` or batch_size\n{story}"
        )
    return Failure.of(attempt, node, _kind(error), story, _place(error))


def _kind(error: BaseException) -> FailureKind:
    if is_full(error):  # of the user's own files
        return FailureKind.DISK_FULL
    if _is_worker_lost(error):
        return FailureKind.CRASH
    if isinstance(error, RuntimeError) and (
        type(error).__name__ == "OutOfMemoryError" or any(sign in message_of(error) for sign in _NO_MEMORY)
    ):
        return FailureKind.OUT_OF_MEMORY
    return next((kind for raised, kind in _KINDS.items() if isinstance(error, raised)), FailureKind.EXCEPTION)


def _is_worker_lost(error: BaseException) -> bool:
    return isinstance(error, RuntimeError) and _WORKER_LOST.search(message_of(error)) is not None


def _place(error: BaseException) -> str:
    """The type and innermost line of a user's exception, so that the same exception on another node is
    recognized. Errors of files, networks and memory have none: they may not happen elsewhere."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or _kind(error) is not FailureKind.EXCEPTION or isinstance(error, CerebroError | OSError):
        return ""
    return f"{type(error).__name__} at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}"
