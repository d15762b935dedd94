"""Memory that a user's file shares between processes: made when the file is imported, it is common to all
ranks of a host, which are forks of one process, and each would see the writes of the others' units."""

from __future__ import annotations

import ctypes
import mmap
import multiprocessing.managers
import multiprocessing.shared_memory
import multiprocessing.sharedctypes
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from cerebro_elastic.data.user_state import reached
from cerebro_elastic.errors import TaskError
from cerebro_elastic.registry import users_name

_KINDS = (
    multiprocessing.sharedctypes.SynchronizedBase,
    multiprocessing.shared_memory.SharedMemory,
    multiprocessing.shared_memory.ShareableList,
    multiprocessing.managers.BaseManager,
    multiprocessing.managers.BaseProxy,
)
_OF_C: Any = (ctypes.Array, ctypes.Structure, ctypes.c_int.__base__)
"""Bases of ``multiprocessing``'s objects without a lock; it keeps the memory in their ``_wrapper``."""


def refuse_shared_memory(root: Path) -> None:
    """Raise ``TaskError`` for such memory that a global variable of an imported file below ``root`` leads
    to."""
    for module in list(sys.modules.values()):
        file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
        if file and users_name(Path(file), root) is not None:
            for path, value in reached({"": module}, is_shared):
                raise TaskError(
                    f"{path} is a {type(value).__name__} in memory that processes share, made when the file "
                    "is imported: all ranks of a host are forks of one process, and would see what each "
                    "other's units write. Make it in the constructor, or take a plain value, array or "
                    "tensor: what is only read costs no memory twice"
                )


def is_shared(value: Any) -> bool:
    """Whether a process's writes to the value are seen by its forks."""
    if isinstance(value, mmap.mmap):
        return True
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(value, torch.Tensor):
        return value.device.type == "cpu" and bool(value.is_shared())
    if torch is not None and isinstance(value, torch.nn.Module):
        return any(map(is_shared, value.state_dict().values()))
    if numpy is not None and isinstance(value, numpy.memmap):
        return value.mode in ("r+", "w+")
    if numpy is not None and isinstance(value, numpy.ndarray):
        return bool(value.flags.writeable) and _in_mapping(value.base)
    return isinstance(value, _KINDS) or (isinstance(value, _OF_C) and hasattr(value, "_wrapper"))


def _in_mapping(base: Any) -> bool:
    while base is not None:
        if isinstance(base, mmap.mmap):
            return True
        base = getattr(base, "base", getattr(base, "obj", None))
    return False
