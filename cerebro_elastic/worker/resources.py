"""What does a unit take of its machine? CPU time and memory of the rank that leads, and of its GPU.

It costs a unit some reads of ``/proc``. A GPU is asked for its utilisation once a second at most; that needs
the package ``nvidia-ml-py``.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from statistics import fmean

from cerebro_elastic.core.model.attempts import Resources
from cerebro_elastic.system.clock import Clock
from cerebro_elastic.worker import memory

_TICK = 1 / os.sysconf("SC_CLK_TCK")
_SAMPLE_SECONDS = 1.0


def cpu_seconds() -> float:
    """The CPU time of this process, and of the loaders that it has started."""
    ended = os.times()
    loaders = [_cpu_seconds_of(process.pid) for process in multiprocessing.active_children()]
    return time.process_time() + ended.children_user + ended.children_system + sum(loaders)


def _cpu_seconds_of(pid: int | None) -> float:
    with suppress(OSError, IndexError, ValueError):  # it has ended meanwhile
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return _TICK * (int(fields[11]) + int(fields[12]))
    return 0.0


def gpu_utilization(device: str) -> float | None:
    """The share of the last moment in which the GPU was at work; ``None`` where nobody says so."""
    if not memory.is_gpu(device) or not _known:
        return None
    try:
        return float(import_module("torch.cuda").utilization(device)) / 100
    except Exception:  # whatever the driver's library raises: it is only shown to people
        _known.clear()
        return None


_known = {True}
"""Emptied once GPUs cannot be asked."""


class ResourceMeter:
    """Measures from ``begin`` to ``end``."""

    def __init__(self, device: str, clock: Clock) -> None:
        self._device = device
        self._clock = clock
        self._began = self._cpu = 0.0
        self._sampled_at = clock.now()
        self._samples: list[float] = []

    def watching(self, beat: Callable[[], None]) -> Callable[[], None]:
        """``beat``, which is called often while a unit trains, and asks the GPU now and then."""
        if not memory.is_gpu(self._device):
            return beat

        def both() -> None:
            beat()
            if self._clock.now() - self._sampled_at >= _SAMPLE_SECONDS:
                self._sample()

        return both

    def begin(self) -> None:
        """From now on."""
        memory.forget_peaks(self._device)
        self._began, self._cpu = self._clock.now(), cpu_seconds()
        self._sampled_at = self._began

    def end(self) -> Resources:
        """What was taken until now."""
        seconds = self._clock.now() - self._began
        if not self._samples:
            self._sample()
        resident, on_gpu = memory.peaks(self._device)
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
