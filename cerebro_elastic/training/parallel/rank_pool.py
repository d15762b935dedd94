"""Rank processes on this machine that live for many units, without a run: replays, tests and measurements.

with Ranks(2) as ranks:
    ranks.together(work, 1, members=[0, 1])     # work(1) in each, in their own group
"""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

import torch

from cerebro_elastic.errors import CerebroError
from cerebro_elastic.system import forkserver
from cerebro_elastic.system.devices import CPU, device_of, use
from cerebro_elastic.system.forkserver.messages import FORK_OF
from cerebro_elastic.system.process import OF_TRAINING, PYTHON
from cerebro_elastic.training.parallel import group

_HOST = "127.0.0.1"
_END_SECONDS = 5.0


class RankFailed(CerebroError):
    """A rank raised (the message is its traceback) or died."""


class Ranks:
    """``size`` processes, started once, that run functions of importable modules. A call may take ``seconds``
    (``None``: any time); a process that needs longer is ended, with its stacks on the standard error."""

    def __init__(self, size: int, seconds: float | None = None) -> None:
        self._seconds = seconds
        self._pipes: list[Connection] = []
        self._processes: list[forkserver.Process] = []
        with ExitStack() as stack:
            for _ in range(size):
                self._start(stack)
            self._stack = stack.pop_all()

    def __enter__(self) -> Ranks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def pid(self, rank: int) -> int:
        """The process's id."""
        return self._processes[rank].pid

    def alone(self, rank: int, function: Callable[..., Any], *args: Any) -> Any:
        """The result of ``function(*args)`` in one process."""
        self.ask(rank, function, *args)
        return self.answer(rank)

    def together(
        self, function: Callable[..., Any], *args: Any, members: Sequence[int], kind: str = CPU
    ) -> list[Any]:
        """Its results in each of the ``members``, as ranks of one group, in that order. Each has a device of
        this ``kind`` for its tensors."""
        self.start(function, *args, members=members, kind=kind)
        answers, failed = [], []
        for member in members:  # each is heard, also after a failure: the next question is another one
            try:
                answers.append(self.answer(member))
            except RankFailed as failure:
                failed.append(failure)
        if failed:
            raise failed[0]
        return answers

    def start(
        self, function: Callable[..., Any], *args: Any, members: Sequence[int], kind: str = CPU
    ) -> None:
        """As ``together``, without waiting for the answers."""
        first, *others = members
        port = self.alone(first, _listen)
        for rank, member in enumerate((first, *others)):
            self.ask(member, _in_group, port, rank, len(members), device_of(kind, rank), function, args)

    def ask(self, rank: int, function: Callable[..., Any], *args: Any) -> None:
        """Let one process begin. Raises ``RankFailed`` if it has died."""
        try:
            self._pipes[rank].send((function, args))
        except ConnectionError as exc:
            raise RankFailed(f"process {rank} died") from exc

    def answer(self, rank: int) -> Any:
        """The result of the process's call. Raises ``RankFailed``."""
        if not self._pipes[rank].poll(self._seconds):
            # faulthandler's; a late answer would be taken for that to the next question.
            os.kill(self.pid(rank), signal.SIGABRT)
            raise RankFailed(f"process {rank}: no answer within {self._seconds} s")
        try:
            failed, value = self._pipes[rank].recv()
        except (EOFError, ConnectionError) as exc:
            raise RankFailed(f"process {rank} died") from exc
        if failed:
            raise RankFailed(f"process {rank}:\n{value}")
        return value

    def _start(self, stack: ExitStack) -> None:
        ours, theirs = socket.socketpair()
        pipe = Connection(ours.detach())
        with theirs:
            process = forkserver.start(
                [*PYTHON, "-m", __name__],
                {**OF_TRAINING, **os.environ},
                stdin=theirs.fileno(),
                stdout=1,
                stderr=2,
                socket=forkserver.SOCKET if forkserver.SOCKET in os.environ else FORK_OF,
            )
        stack.callback(_end, process)
        stack.callback(pipe.close)
        pipe.send(sys.path)
        self._pipes.append(pipe)
        self._processes.append(process)


def _end(process: forkserver.Process) -> None:
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


_kept: list[Any] = []
"""The store that this process listens with, until its group is formed."""


def _serve(pipe: Connection) -> None:
    faulthandler.enable()
    sys.path[:] = pipe.recv()
    torch.set_num_threads(1)
    group.warm()
    while True:
        try:
            function, args = pipe.recv()
        except (EOFError, ConnectionError):
            return
        try:
            pipe.send((False, function(*args)))
        except Exception:
            pipe.send((True, traceback.format_exc()))
        group.sweep()


def _listen() -> int:
    _kept[:] = [group.listen(_HOST)]
    port: int = _kept[0].port
    return port


def _in_group(
    port: int, rank: int, size: int, device: str, function: Callable[..., Any], args: Sequence[Any]
) -> Any:
    use(device)
    store = _kept.pop() if rank == 0 else group.connect(_HOST, port)
    with group.formed(store, rank, size, torch.device(device)):
        return function(*args)


if __name__ == "__main__":
    from cerebro_elastic.training.parallel import rank_pool

    rank_pool._serve(Connection(os.dup(0)))  # by the module's name: functions find ``_kept`` there
