"""The keeper of one forked process: passes signals on to it, reports its end, leaves nothing of it behind.
And how the fork becomes the requested process: as if ``python -m MODULE`` had started it."""

from __future__ import annotations

import atexit
import ctypes
import io
import os
import random
import runpy
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from setproctitle import setproctitle

from cerebro_elastic.system.forkserver.messages import Request, receive, send
from cerebro_elastic.system.process import PYTHON, children, die_with_parent

_TITLE = "cerebro: keeper of a forked process"
ANEW = 75
"""The exit status by which a child asks to be replaced by a fresh fork (``EX_TEMPFAIL`` of sysexits). The
client sees the same process."""


def keep(connection: socket.socket, request: Request, descriptors: Sequence[int]) -> bool:
    """Fork the requested process, and keep it until it ends. The keeper itself does not return.

    The client gets ``{"pid": ...}``, then ``{"status": ...}`` (of ``os.waitpid``). It sends
    ``{"signal": ...}``. When it closes the connection, the child is killed.

    Returns:
        ``True`` in the child, which runs the request.
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
    """The child's exit status; ``None`` if nobody waits for it any more."""
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
    """Give the child time to end."""
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
    """Kill the child, if it lives, and all its descendants: orphans become children of this process."""
    with suppress(ChildProcessError):
        while True:
            for pid in children():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            os.waitpid(-1, 0)


_PARENT = "CEREBRO_PARENT"
"""Names the process that a program must not outlive: the keeper, for a fork."""
_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Become the parent of all descendants whose own parents end."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def become(request: Request, descriptors: Sequence[int]) -> None:
    """Make this process like a fresh one: session, files, environment, signals, randomness."""
    os.setsid()
    setproctitle(" ".join([*PYTHON, "-m", *request.argv]))  # in `ps`, it was the server's
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    before = os.environ.get("PYTHONPATH", "")
    os.environ.clear()
    os.environ.update(request.env)
    if _PARENT in os.environ:
        os.environ[_PARENT] = str(os.getppid())
    os.chdir(request.cwd)
    _set_search_path(before)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    random.seed()
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()


def run(request: Request) -> NoReturn:
    """Do what ``python -m`` does with the module and its arguments, and end the process as it does.

    The server's imports are not torn down object by object: that would copy all of their pages.
    """
    status = 1
    try:
        _run_module(request)
        status = 0
    except SystemExit as end:
        status = _status(end)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # joins the threads that are no daemons
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _status(end: SystemExit) -> int:
    """The exit status that Python makes of the exception."""
    if end.code is None or isinstance(end.code, int):
        return (end.code or 0) & 0xFF
    print(end.code, file=sys.stderr)
    return 1


def _run_module(request: Request) -> None:
    module, *arguments = request.argv
    sys.modules.pop(module, None)  # as a program it is another module, ``__main__``
    sys.argv = [module, *arguments]
    sys.orig_argv = [*PYTHON, "-m", module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _set_search_path(before: str) -> None:
    """This environment's ``PYTHONPATH`` in the place of the server's."""
    former = [os.path.abspath(entry) for entry in before.split(os.pathsep) if entry]
    own = [os.path.abspath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    rest = [entry for entry in sys.path if entry not in former]
    sys.path[:] = [*own, *(entry for entry in rest if entry not in own)]
