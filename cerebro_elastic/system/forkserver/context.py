"""``multiprocessing`` with the fork server: its processes are forks that have imported torch already.

Modelled on ``multiprocessing.popen_forkserver``. Pickling and unpickling are those of ``spawn``. Open files
travel over a socket, which is at first the process's standard input.
"""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
from multiprocessing import process, reduction, resource_tracker, spawn
from multiprocessing.context import SpawnContext, SpawnProcess, set_spawning_popen
from typing import Any

from cerebro_elastic.system.forkserver._multiprocessing_internals import run_spawned, use_tracker
from cerebro_elastic.system.forkserver.client import start
from cerebro_elastic.system.forkserver.messages import FORK_OF
from cerebro_elastic.system.process import OF_TRAINING, PYTHON

_MOST_FILES = 253
"""As many as one message over a socket may hold (``SCM_MAX_FD`` of Linux)."""
_inherited: list[int] = []
"""In a process that was started: the open files that it was given."""


class ForkServerContext(SpawnContext):
    """The context whose processes are forks of this process's own fork server, and end with this process.

    Without one they are spawned.
    """

    class Process(SpawnProcess):
        @staticmethod
        def _Popen(process_obj: process.BaseProcess) -> Any:
            return _Started(process_obj)


class _Started:
    """The process, by the interface of ``multiprocessing`` (``popen_fork.Popen``)."""

    method = "spawn"

    def __init__(self, started: process.BaseProcess) -> None:
        self._files: list[int] = [resource_tracker.getfd()]  # type: ignore[list-item]  # it runs after this
        pickled = io.BytesIO()
        set_spawning_popen(self)  # type: ignore[arg-type]  # it has the two methods that are called
        try:
            reduction.dump(spawn.get_preparation_data(started.name), pickled)
            reduction.dump(started, pickled)
        finally:
            set_spawning_popen(None)
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = start(
                [*PYTHON, "-m", __name__],
                {**OF_TRAINING, **os.environ},
                stdin=theirs.fileno(),
                stdout=1,
                stderr=2,
                socket=FORK_OF,
            )
        self.pid = self._process.pid
        self.sentinel = self._socket.fileno()
        """Can be read when the process has ended."""
        socket.send_fds(self._socket, [b"\0"], self._files)
        self._socket.sendall(pickled.getbuffer())

    def duplicate_for_child(self, file: int) -> int:
        """Have the process inherit an open file. Returns the file's number in that process."""
        self._files.append(file)
        return len(self._files) - 1

    def DupFd(self, number: int) -> Any:
        return _Inherited(number)

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    def poll(self, _flag: int = 0) -> int | None:
        return self._process.poll()

    def wait(self, timeout: float | None = None) -> int | None:
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        self._socket.close()


class _Inherited:
    """An open file in the process that was started, by its number."""

    def __init__(self, number: int) -> None:
        self._number = number

    def detach(self) -> int:
        return _inherited[self._number]


def main() -> int:
    """The process that was started. Returns its exit status."""
    given = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    _, _inherited[:], _, _ = socket.recv_fds(given, 1, _MOST_FILES)
    use_tracker(_inherited[0])
    return run_spawned(os.dup(given.fileno()), given.detach())


if __name__ == "__main__":
    from cerebro_elastic.system.forkserver import context

    sys.exit(context.main())  # by the module's name: open files are looked up there
