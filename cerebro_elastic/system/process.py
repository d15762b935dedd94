"""Process trees that end together, and folders that end with their process: no orphan survives its parent,
however the parent died."""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import signal
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

MARK = "CEREBRO_MARK"
"""The environment variable that marks all descendants of one of our processes; they must not outlive it."""
PYTHON = (sys.executable, "-P")
"""The command of Python. With ``-P`` a ``random.py`` in the working directory does not take the place of the
standard library's."""
SAFE_PATH = {"PYTHONSAFEPATH": "cerebro"}
"""The environment that does the same, for processes that others start. It is not for the users' processes."""
OF_TRAINING = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 31),
    "PYTHONHASHSEED": "0",
}
"""The environment of processes that run the user's code. Without the first two glibc maps and unmaps every
large tensor, which costs 15 to 30 % of a step on the CPU (design, section 8). Without the last a set of
texts, and so ``classes = list(set(labels))``, has another order on each host."""
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


def begin_as_training() -> None:
    """Start this command again if it orders sets of texts by chance: it runs the user's code, which must have
    the same order in all processes of a run."""
    given = sys.argv[1:]
    by_chance = sys.flags.hash_randomization and "PYTHONHASHSEED" not in os.environ
    if by_chance and sys.orig_argv[-len(given) :] == given:
        os.execve(sys.executable, sys.orig_argv, {**OF_TRAINING, **os.environ})


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
    """The kernel's names of this process's threads, except the main one and those whose libraries are
    prepared for forks. None on other systems than Linux."""
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
        pids = [pid for pid in _pids() if pid != os.getpid() and mark in environment_of(pid)]
        if not pids:
            return
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE)


def children() -> list[int]:
    """This process's children."""
    own = os.getpid()
    return [pid for pid in _pids() if (known := state_and_parent(pid)) is not None and known[1] == own]


def state_and_parent(pid: int) -> tuple[str, int] | None:
    """The letter of a process's state, and the id of its parent; ``None`` if they cannot be read."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name of the command may hold anything.
            state, parent, *_ = file.read().rpartition(b")")[2].split()
    except (OSError, ValueError):
        return None
    return state.decode(), int(parent)


def _pids() -> list[int]:
    with suppress(FileNotFoundError):
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    return []


def environment_of(pid: int) -> list[bytes]:
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
    """Drop further output to ``file``, whose reader is gone (``cerebro run ... | head``). The command
    continues."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, file.fileno())
    os.close(nowhere)


def is_locked(path: Path) -> bool:
    """Whether a process has locked the file. The look at it holds the lock for an instant."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK)) as file:
            return not try_lock(file)
    except FileNotFoundError:
        return False


def try_lock(file: IO[str] | int) -> bool:
    """Lock an open file. Returns whether no other process has locked it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


SCRATCH = "CEREBRO_SCRATCH"
"""The variable with the place of such folders. A run's agents get one in the run's folder."""

_LOCK = "lock"


class Scratch:
    """An empty folder ``path``, removed by ``close``, at the end of a ``with``, or of the process.

    If that is killed the next process that makes a folder of this ``kind`` in the same place removes it. It
    is recognised by its lock, which nobody holds any more.
    """

    def __init__(self, kind: str) -> None:
        parent = Path(os.environ.get(SCRATCH) or tempfile.gettempdir())
        parent.mkdir(parents=True, exist_ok=True)
        prefix = f"cerebro-{kind}-"
        for folder in parent.glob(f"{prefix}*"):
            _remove_if_left(folder)
        self._folder = tempfile.TemporaryDirectory(prefix=prefix, dir=parent, ignore_cleanup_errors=True)
        self.path = Path(self._folder.name, "files")
        self.path.mkdir()
        self._lock = _locked(Path(self._folder.name))

    def __repr__(self) -> str:
        return f"<Scratch {self.path}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._folder.cleanup()
        self._lock.close()


def _locked(folder: Path) -> IO[str]:
    """Lock the folder. The lock file gets its name only once it is locked, so that no process takes the
    folder for one that a killed process left."""
    lock = (folder / f".{_LOCK}").open("w")
    # Where files cannot be locked the folder is left if this process is killed.
    with suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(lock.name, folder / _LOCK)
    return lock


def _remove_if_left(folder: Path) -> None:
    # One without a lock is just being made, or removed.
    with suppress(OSError):
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            return  # another user's; its lock may be a pipe, which would never open
        with open(os.open(folder / _LOCK, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
