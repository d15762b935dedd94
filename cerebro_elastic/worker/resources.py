"""A rank's use of its machine, and its limits: memory, CPU time, and the work of its GPU.

Memory is an accelerator's, as torch's allocator counts it; on a CPU it is the process's resident memory, as
the kernel counts it. A measurement costs a unit some reads of ``/proc``. A device's utilisation is read once
a second at most; for NVIDIA's that needs the package ``nvidia-ml-py``.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from statistics import fmean

from cerebro_elastic.core.model.attempts import Resources
from cerebro_elastic.errors import RunError
from cerebro_elastic.hop.checkpoint.on_device import copies_bytes, keep_copies_of
from cerebro_elastic.system import devices
from cerebro_elastic.system.clock import Clock
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
    """The bytes that a unit may take now: the free ones, at most ``limit``."""
    free = devices.free_bytes(device) if devices.is_accelerator(device) else None
    free = _free_on_host() if free is None else free
    return free if limit is None else min(free, limit)


def trim() -> None:
    """Give freed memory that glibc's allocator keeps back to the system."""
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)


class Meter:
    """The most memory that a rank has in use from now on."""

    def __init__(self, device: str) -> None:
        self._device = device
        if not devices.is_accelerator(device):
            trim()
        keep_copies_of(())  # of bases: the unit's own count
        forget_peaks(device)
        resident, on_device = in_use(device)
        self._before = on_device if devices.is_accelerator(device) else resident

    def peak_bytes(self) -> int:
        """Bytes on top of those at the beginning."""
        resident, on_device = peaks(self._device)
        peak = on_device if devices.is_accelerator(self._device) else resident
        return max(0, peak - self._before)


def forget_peaks(device: str) -> None:
    """Reset ``peaks``."""
    devices.forget_peak(device)
    with suppress(OSError):  # where it is not allowed, the highest of the process's life counts
        Path("/proc/self/clear_refs").write_text("5")


def peaks(device: str) -> tuple[int, int]:
    """The most bytes of the process in the host's memory, and of its tensors on an accelerator."""
    return _resident("VmHWM"), devices.peak_bytes(device)


def in_use(device: str) -> tuple[int, int]:
    """Bytes of the process in the host's memory, and of its tensors on an accelerator."""
    return _resident("VmRSS"), devices.allocated_bytes(device)


def bytes_in_use(device: str) -> int:
    """The sum of both."""
    return sum(in_use(device))


def _resident(what: str) -> int:
    return _kilobytes(Path("/proc/self/status"), what)


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


_TICK = 1 / os.sysconf("SC_CLK_TCK")
_SAMPLE_SECONDS = 1.0


def cpu_seconds() -> float:
    """The CPU time of this process, and of the loaders that it has started."""
    ended = os.times()
    loaders = [_cpu_seconds_of(process.pid) for process in multiprocessing.active_children()]
    return time.process_time() + ended.children_user + ended.children_system + sum(loaders)


def _cpu_seconds_of(pid: int | None) -> float:
    with suppress(OSError, IndexError, ValueError):  # it has ended
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return _TICK * (int(fields[11]) + int(fields[12]))
    return 0.0


def gpu_utilization(device: str) -> float | None:
    """The GPU's utilisation in the last moment, as a share; ``None`` if it is unknown."""
    if not devices.is_accelerator(device) or not _known:
        return None
    try:
        return devices.utilization(device)
    except Exception:  # the driver's library may raise anything: the figure is only shown to people
        _known.clear()
        return None


_known = {True}
"""Emptied once GPUs cannot be queried."""


class ResourceMeter:
    """Measures from ``begin`` to ``end``."""

    def __init__(self, device: str, clock: Clock) -> None:
        self._device = device
        self._clock = clock
        self._began = self._cpu = 0.0
        self._sampled_at = clock.now()
        self._samples: list[float] = []

    def watching(self, beat: Callable[[], None]) -> Callable[[], None]:
        """``beat``, which is called often while a unit trains, and queries the GPU now and then."""
        if not devices.is_accelerator(self._device):
            return beat

        def both() -> None:
            beat()
            if self._clock.now() - self._sampled_at >= _SAMPLE_SECONDS:
                self._sample()

        return both

    def begin(self) -> None:
        forget_peaks(self._device)
        self._began, self._cpu = self._clock.now(), cpu_seconds()
        self._sampled_at = self._began

    def end(self) -> Resources:
        """The usage until now."""
        seconds = self._clock.now() - self._began
        if not self._samples:
            self._sample()
        resident, on_gpu = peaks(self._device)
        return Resources(
            cpu=round((cpu_seconds() - self._cpu) / seconds, 2) if seconds > 0 else 0.0,
            memory_bytes=resident,
            gpu_bytes=on_gpu,
            gpu=round(fmean(self._samples), 2) if self._samples else 0.0,
        )

    def _sample(self) -> None:
        self._sampled_at = self._clock.now()
        if (share := gpu_utilization(self._device)) is not None:
            self._samples.append(share)


GROWTH = "CEREBRO_GROWTH"
_GROWTH = 2 * 10**9
"""Bytes that a rank's memory may grow by, unless ``CEREBRO_GROWTH`` gives another number."""


class Growth:
    """How much the memory of a rank has grown since this object was made."""

    def __init__(self, device: str, env: Mapping[str, str]) -> None:
        most = bytes_of(env, GROWTH)
        self._most = _GROWTH if most is None else most
        self._device = device
        self._before = self._in_use()

    def too_much(self, saving: int = 0) -> bool:
        """Whether it is time for a fresh process; to be called between units.

        Memory that allocators keep for the next unit is given back first, but only if the limit is exceeded:
        to get it again takes time. ``saving`` are the bytes of a state that is still being saved in the
        background.
        """
        most = self._before + self._most + saving
        if self._in_use() <= most:
            return False
        devices.give_back(self._device)
        trim()
        return self._in_use() > most

    def _in_use(self) -> int:
        """Without copies of bases, which the next unit takes or gives up."""
        return bytes_in_use(self._device) - copies_bytes()


def start_anew() -> None:
    """Replace this process by a fresh one with the same command, id, environment and output.

    Libraries keep memory of finished units; DeepSpeed's ZeRO-3 is known for it. The agent does not notice,
    the node's registration remains, no unit is lost and no restart is counted. A unit that is assigned in
    that time waits for some seconds.
    """
    if (workers := sys.modules.get("cerebro_elastic.data.reading.worker_processes")) is not None:
        workers.end_idle()  # no exit function runs here
    sys.stdout.flush()
    sys.stderr.flush()
    # Python's own files close automatically, those of libraries may not.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.execv(sys.executable, [*PYTHON, *(word for word in sys.orig_argv[1:] if word != "-P")])
