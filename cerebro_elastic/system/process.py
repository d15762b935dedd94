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
from typing import IO

MARK = "CEREBRO_MARK"
"""The environment variable that marks all descendants of one of our processes; they must not outlive it."""
PYTHON = (sys.executable, "-P")
"""The command of Python. With ``-P`` a ``random.py`` in the working directory does not take the place of the
standard library's."""
SAFE_PATH = {"PYTHONSAFEPATH": "cerebro"}
"""The environment that does the same, for processes that others start. It is not for the users' processes."""
ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 31),
}
"""The environment of processes that train. Without it glibc maps and unmaps every large tensor, which costs
15 to 30 % of a step on the CPU (design, section 8)."""
_SAFE_THREADS = frozenset({"jemalloc_bg_thd"})
"""Threads whose libraries are prepared for forks: pyarrow's allocator (``pthread_atfork``)."""
_PR_SET_PDEATHSIG = 1
_ROUNDS, _PAUSE = 50, 0.02
"""How often to look for marked processes, and the seconds between two looks."""


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when its parent ends. End at once if the parent, with the process
    id ``parent``, has ended already. Does nothing on other systems than Linux."""
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


def thread_names() -> list[str]:
    """The names of this process's threads besides the main one, as the kernel has them, without those whose
    libraries are prepared for forks. None on other systems than Linux."""
    names = []
    with suppress(FileNotFoundError):
        for task in os.listdir("/proc/self/task"):
            if int(task) != os.getpid():
                with suppress(OSError), open(f"/proc/self/task/{task}/comm") as file:
                    names.append(file.read().strip())
    return [name for name in names if name not in _SAFE_THREADS]


def end_marked(variable: str, value: str) -> None:
    """Kill all other processes of this machine that were started with this environment variable.

    A process that users' code starts may leave its parent, process group and session, but it keeps its
    environment. Does nothing on other systems than Linux.
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
    """The environment with which a process was started; empty if it has ended or is another user's."""
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


def stop_printing(file: IO[str]) -> None:
    """Drop further output to ``file``, which has no reader any more (``cerebro run ... | head``). The command
    goes on."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, file.fileno())
    os.close(nowhere)
