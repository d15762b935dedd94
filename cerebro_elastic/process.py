"""Process trees that end together: no orphan survives its parent, however the parent died."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

MARK = "CEREBRO_MARK"
"""Tells all processes that descend from one of ours, and must not outlive it."""
ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 31),
}
"""The environment of processes that train. Without it glibc maps and unmaps every large tensor, which costs
15 to 30 % of a step on the CPU (design, section 8)."""
_PR_SET_PDEATHSIG = 1
_ROUNDS, _PAUSE = 50, 0.02
"""How often those are looked for that must not live on, and seconds between two looks."""


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when its parent ends; end at once if ``parent`` (its
    pid, as the parent said it) is gone already. On other systems than Linux, nothing."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def is_alive(pid: int) -> bool:
    """Whether this machine has a process of this id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        return True
    return True


def end_marked(variable: str, value: str) -> None:
    """Kill all processes of this machine that were started with this environment variable, but for this one.

    What users' code starts may have left its parent, process group and session; its environment it keeps.
    On other systems than Linux, nothing.
    """
    mark = f"{variable}={value}".encode()
    for _ in range(_ROUNDS):  # one may have forked while others were looked at
        pids = [pid for pid in _pids() if pid != os.getpid() and mark in _environment(pid)]
        if not pids:
            return
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE)


def _pids() -> list[int]:
    with suppress(FileNotFoundError):
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    return []


def _environment(pid: int) -> list[bytes]:
    """What the process was started with; nothing of one that has ended, or is another user's."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def watch_parent(parent: int, gone: Callable[[], None], poll: float = 0.5) -> None:
    """Call ``gone`` from a daemon thread when ``parent`` is no longer this process's parent. Unlike
    ``die_with_parent`` this leaves time to clean up."""

    def watch() -> None:
        while not stop.wait(poll):
            if os.getppid() != parent:
                gone()
                return

    stop = threading.Event()
    threading.Thread(target=watch, name="watch-parent", daemon=True).start()
