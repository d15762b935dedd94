"""The memory of a rank: how much a unit may take, and how much it has taken.

On a GPU it is the device's, as torch's allocator counts it. On a CPU it is the process's resident memory, as
the kernel counts it. Devices are called as torch calls them; torch is imported for GPUs only.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from cerebro_elastic.errors import RunError
from cerebro_elastic.system.process import PYTHON
from cerebro_elastic.system.words import byte_count

LIMIT = "CEREBRO_MEMORY"
_GROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
"""Limit and use of the control group, as a container sees it: of version 2, and of version 1."""


def limit_of(env: Mapping[str, str]) -> int | None:
    """The bytes that a unit may take on a rank, if ``CEREBRO_MEMORY`` says so."""
    return bytes_of(env, LIMIT)


def bytes_of(env: Mapping[str, str], name: str) -> int | None:
    """The bytes that a variable gives, such as 800M or 2.5G, ``None`` if it is absent or empty; ``RunError``
    for anything else."""
    text = env.get(name)
    if not text:
        return None
    if (count := byte_count(text)) is None:
        raise RunError(f"{name} is {text!r}: give a number of bytes, such as 800M or 2.5G")
    return count


def free_bytes(device: str, limit: int | None) -> int:
    """The bytes that a unit may take now: those that are free, at most ``limit``."""
    free = _free_on_gpu(device) if is_gpu(device) else _free_on_host()
    return free if limit is None else min(free, limit)


def trim() -> None:
    """Give freed memory that glibc's allocator keeps back to the system."""
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)


class Meter:
    """The most memory that a rank has in use from now on."""

    def __init__(self, device: str) -> None:
        self._device = device
        if not is_gpu(device):
            trim()
        forget_peaks(device)
        self._before: int = _cuda().memory_allocated(device) if is_gpu(device) else _resident("VmRSS")

    def peak_bytes(self) -> int:
        """Bytes on top of those at the beginning."""
        resident, on_gpu = peaks(self._device)
        return on_gpu - self._before if is_gpu(self._device) else max(0, resident - self._before)


def forget_peaks(device: str) -> None:
    """From now on ``peaks`` counts anew."""
    if is_gpu(device):
        _cuda().reset_peak_memory_stats(device)
    with suppress(OSError):  # where it is not allowed, the highest of the process's life counts
        Path("/proc/self/clear_refs").write_text("5")


def peaks(device: str) -> tuple[int, int]:
    """The most bytes of the process in the host's memory, and of its tensors on a GPU."""
    on_gpu = int(_cuda().max_memory_allocated(device)) if is_gpu(device) else 0
    return _resident("VmHWM"), on_gpu


def in_use(device: str) -> tuple[int, int]:
    """Bytes of the process in the host's memory, and of its tensors on a GPU."""
    on_gpu: int = _cuda().memory_allocated(device) if is_gpu(device) else 0
    return _resident("VmRSS"), on_gpu


def bytes_in_use(device: str) -> int:
    """The sum of both."""
    return sum(in_use(device))


def free_cached(device: str) -> None:
    """Give memory that torch's allocator keeps for later back to the device."""
    if is_gpu(device):
        _cuda().empty_cache()


def synchronize(device: str) -> None:
    """Wait until the device has done what it was asked to."""
    if is_gpu(device):
        _cuda().synchronize(device)


def is_gpu(device: str) -> bool:
    """Whether the device is a GPU that torch uses."""
    return device.startswith("cuda")


def _cuda() -> Any:
    return import_module("torch.cuda")


def _resident(what: str) -> int:
    return _kilobytes(Path("/proc/self/status"), what)


def _free_on_gpu(device: str) -> int:
    free, _ = _cuda().mem_get_info(device)
    return int(free + _cuda().memory_reserved(device) - _cuda().memory_allocated(device))


def _free_on_host() -> int:
    free = _kilobytes(Path("/proc/meminfo"), "MemAvailable")
    for most, used in _GROUPS:
        with suppress(OSError, ValueError):  # no such control group, or none with a limit ("max")
            free = min(free, int(Path(most).read_text()) - int(Path(used).read_text()))
    return free


def _kilobytes(file: Path, name: str) -> int:
    """The value of the line ``name``, in bytes."""
    match = re.search(rf"^{name}:\s+(\d+) kB$", file.read_text(), re.MULTILINE)
    assert match is not None
    return 1024 * int(match[1])


GROWTH = "CEREBRO_GROWTH"
_GROWTH = 2 * 10**9
"""Bytes that a rank's memory may grow by, unless ``CEREBRO_GROWTH`` gives another number."""


class Growth:
    """How much the memory of a rank has grown since this object was made."""

    def __init__(self, device: str, env: Mapping[str, str]) -> None:
        most = bytes_of(env, GROWTH)
        self._most = _GROWTH if most is None else most
        self._device = device
        self._before = bytes_in_use(device)

    def too_much(self, saving: int = 0) -> bool:
        """Whether it is time for a fresh process; to be called between units.

        Memory that allocators keep for the next unit is given back first, but only if the limit is exceeded:
        to get it again takes time.

        Args:
            saving: Bytes of a state that is still being saved in the background.
        """
        most = self._before + self._most + saving
        if bytes_in_use(self._device) <= most:
            return False
        free_cached(self._device)
        trim()
        return bytes_in_use(self._device) > most


def start_anew() -> None:
    """Replace this process by a fresh one with the same command, id, environment and output.

    Libraries keep memory of units that are long over; DeepSpeed's ZeRO-3 is known for it. The agent does not
    notice, the node's registration stands, no unit is lost and no restart is counted. A unit that is assigned
    meanwhile waits for some seconds.
    """
    if (workers := sys.modules.get("cerebro_elastic.data.reading.worker_processes")) is not None:
        workers.end_idle()  # no exit function runs here
    sys.stdout.flush()
    sys.stderr.flush()
    # Python's own files close by themselves, those of libraries may not.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.execv(sys.executable, [*PYTHON, *(word for word in sys.orig_argv[1:] if word != "-P")])
