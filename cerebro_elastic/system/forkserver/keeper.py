"""The keeper of one forked process: passes signals on to it, reports its end, leaves nothing of it behind."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import suppress

from setproctitle import setproctitle

from cerebro_elastic.system.forkserver.child import adopt_orphans, become
from cerebro_elastic.system.forkserver.messages import Request, receive, send
from cerebro_elastic.system.process import die_with_parent

_TITLE = "cerebro: keeper of a forked process"
ANEW = 75
"""The exit status by which a child asks to be replaced by a fresh fork (``EX_TEMPFAIL`` of sysexits). For
the client it is the same process."""


def keep(connection: socket.socket, request: Request, descriptors: Sequence[int]) -> bool:
    """Fork the process that is asked for, and keep it until it ends. The keeper itself does not return.

    The client gets ``{"pid": ...}``, then ``{"status": ...}`` (of ``os.waitpid``). It sends
    ``{"signal": ...}``. When it closes the connection, the child is killed.

    Returns:
        ``True`` in the child, which is to run the request.
    """
    setproctitle(_TITLE)
    adopt_orphans()
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        child = _fork(connection, wake, woken)
        if child == 0:
            become(request, descriptors)
            return True
        with suppress(BrokenPipeError):
            send(connection, {"pid": child})
        status = _watch(connection, child, wake)
        if status is None:
            _ask_to_end(child, wake, request.grace_seconds)
        _end_descendants()
        if status is None:
            os._exit(0)
        if os.waitstatus_to_exitcode(status) != ANEW:
            with suppress(BrokenPipeError):
                send(connection, {"status": status})
            os._exit(0)


def _fork(connection: socket.socket, wake: int, woken: int) -> int:
    keeper = os.getpid()
    child = os.fork()
    if child == 0:
        signal.set_wakeup_fd(-1)
        die_with_parent(keeper)
        connection.close()
        os.close(wake)
        os.close(woken)
    return child


def _watch(connection: socket.socket, child: int, wake: int) -> int | None:
    """The status with which the child ended; ``None`` if nobody waits for it any more."""
    while True:
        ready, _, _ = select.select([connection.fileno(), wake], [], [])
        if wake in ready:
            os.read(wake, 1 << 12)
            status = _reap(child)
            if status is not None:
                return status
        if connection.fileno() in ready:
            message = receive(connection)
            if message is None:
                return None
            with suppress(ProcessLookupError):
                os.kill(child, message["signal"])


def _ask_to_end(child: int, wake: int, seconds: float) -> None:
    """Give the child time to end by itself."""
    deadline = time.monotonic() + seconds
    if seconds:
        os.kill(child, signal.SIGTERM)
    while (left := deadline - time.monotonic()) > 0 and _reap(child) is None:
        if select.select([wake], [], [], left)[0]:
            os.read(wake, 1 << 12)


def _reap(child: int) -> int | None:
    """Take note of all that have ended, adopted orphans too; the child's status if it is among them."""
    status = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                status = ended[1]
    return status


def _end_descendants() -> None:
    """Kill the child, if it lives, and all that descends from it: what loses its parent becomes ours."""
    with suppress(ChildProcessError):
        while True:
            for pid in _children():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            os.waitpid(-1, 0)


def _children() -> list[int]:
    """This process's children, by ``/proc``."""
    own = os.getpid()
    children = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                # The name of the command may hold anything; the parent is the second field behind it.
                if int(file.read().rpartition(b")")[2].split()[1]) == own:
                    children.append(int(name))
    return children
