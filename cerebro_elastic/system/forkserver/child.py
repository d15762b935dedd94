"""A forked process becomes the one that was asked for: as if ``python -m MODULE`` had started it."""

from __future__ import annotations

import atexit
import ctypes
import io
import os
import random
import runpy
import signal
import sys
import threading
from collections.abc import Sequence
from typing import NoReturn

from setproctitle import setproctitle

from cerebro_elastic.system.forkserver.messages import Request
from cerebro_elastic.system.process import PYTHON

_PARENT = "CEREBRO_PARENT"
"""Names the process that a program must not outlive: the keeper, for a fork."""
_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Become the parent of all descendants whose own parents end."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def become(request: Request, descriptors: Sequence[int]) -> None:
    """Give this process what a fresh one would have: session, files, environment, signals, randomness."""
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

    What the server has imported is not torn down object by object: that would copy all of its pages.
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
