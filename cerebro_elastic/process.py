"""Process trees that end together: no orphan survives its parent, however the parent died."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


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
