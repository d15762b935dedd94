"""The client of a fork server: starts it, requests forks, and holds their processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Protocol, Self

from cerebro_elastic.system.forkserver.messages import (
    SOCKET,
    Imports,
    Request,
    address,
    receive,
    send,
    send_request,
)
from cerebro_elastic.system.process import PYTHON, Scratch

STAND_IN = "CEREBRO_STAND_IN"
"""The environment variable that tells a fork which process stands in for it."""
_FIT_TO_BE_FORKED = {"OMP_NUM_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
"""The environment in which imports start no threads, and look for GPUs without CUDA, unless the user's says
otherwise."""
_PAUSE = 0.01


class Refused(Exception):
    """The server cannot fork: the process has to be started by its command."""


class ForkServer:
    """A fork server that has imported ``modules``, and ends with this context or with this process.

    Args:
        modules: Names of the modules to import, in this order.
        env: The environment for the imports; by default this process's.
    """

    def __init__(self, modules: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self._folder = Scratch("fork")
        self._path = self._folder.path / "socket"
        server = "cerebro_elastic.system.forkserver.server"
        with open(self._folder.path / "log", "ab") as log:
            self._process = subprocess.Popen(
                [*PYTHON, "-m", server, str(self._path), str(os.getpid()), *modules],
                env={**_FIT_TO_BE_FORKED, **(os.environ if env is None else env)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def path(self) -> str:
        """Its socket, once it listens. Raises ``Refused`` if the server could not be started."""
        while not self._path.exists():
            if self._process.poll() is not None:
                raise Refused(f"the fork server could not start: it ended with {self._process.returncode}")
            time.sleep(_PAUSE)
        return str(self._path)

    def load(self, modules: Sequence[str], root: str, log: IO[bytes]) -> None:
        """Have more modules imported before the next process is forked; do not wait for it.

        Args:
            modules: Their names, in this order.
            root: The first folder of the search path while these are imported.
            log: The file for the server's log and the output of imports, also the earlier output.

        Raises:
            Refused: The server could not be started, or has ended.
        """
        try:
            path = self.path
        except Refused:
            log.write((self._folder.path / "log").read_bytes())
            raise
        with open(os.devnull, "rb") as nothing:
            _ask(path, Imports(modules, root), [nothing.fileno(), log.fileno(), log.fileno()]).close()

    @property
    def pid(self) -> int:
        """The server's process id; its children are keepers."""
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the server. Keepers and children end with it."""
        self._process.kill()
        self._process.wait()
        self._folder.close()


class ForkedProcess:
    """A process that a fork server has forked; it has the methods of ``subprocess.Popen`` that we use."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self._connection = connection
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, negative for a signal; ``None`` while it runs."""
        if self.returncode is None:
            self._connection.setblocking(False)
            with suppress(BlockingIOError):
                self._listen()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, waited for. Raises ``subprocess.TimeoutExpired``."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            self._connection.settimeout(None if deadline is None else max(deadline - time.monotonic(), 1e-6))
            try:
                self._listen()
            except TimeoutError as exc:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0) from exc
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, if it runs. Reads nothing, so that a signal handler may call it."""
        with suppress(OSError):
            send(self._connection, {"signal": number})

    def kill(self) -> None:
        """Kill it and all that descends from it."""
        self.send_signal(signal.SIGKILL)

    def _listen(self) -> None:
        try:
            message = receive(self._connection)
        except ConnectionError:
            message = None
        if message is None:  # the keeper was killed, and the child with it
            self._end(-signal.SIGKILL)
        elif "pid" in message:
            self.pid = message["pid"]
        elif "status" in message:
            self._end(os.waitstatus_to_exitcode(message["status"]))

    def _end(self, code: int) -> None:
        if self.returncode is None:
            self.returncode = code
            self._connection.close()


class _SessionLeader(subprocess.Popen[bytes]):
    """A process in its own session; it is killed with its children."""

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


class Process(Protocol):
    """A process that was started, by a fork or by its command."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, number: int, /) -> None: ...
    def kill(self) -> None: ...


def start(
    command: Sequence[str],
    env: Mapping[str, str],
    *,
    stdin: int,
    stdout: int,
    stderr: int,
    grace_seconds: float = 0.0,
    socket: str = SOCKET,
) -> Process:
    """Start a command in its own session. ``python -P -m ...`` is a fork of the server that ``env`` names.

    Args:
        command: The program and its arguments.
        env: The whole environment.
        stdin: A file descriptor of this process, or ``subprocess.DEVNULL``.
        stdout: Likewise.
        stderr: Likewise.
        grace_seconds: When this process ends, a fork gets SIGTERM, and is killed after this time.
        socket: The variable in ``env`` that names the server's socket.
    """
    if socket in env and tuple(command[:3]) == (*PYTHON, "-m"):
        with open(os.devnull, "r+b") as nothing, suppress(Refused):
            files = [
                nothing.fileno() if file == subprocess.DEVNULL else file for file in (stdin, stdout, stderr)
            ]
            return connect(
                env[socket], Request(list(command[3:]), dict(env), os.getcwd(), grace_seconds), files
            )
    return _SessionLeader(command, env=env, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True)


def connect(path: str, request: Request, files: Sequence[int]) -> ForkedProcess:
    """Have the server at ``path`` fork a process. It waits for the server's imports.

    ``files`` are the standard input, output and error of the process. Raises ``Refused`` if the server has
    ended, or if an import has made it unfit to be forked.
    """
    connection = _ask(path, request, files)
    try:
        message = receive(connection)
    except OSError as exc:
        connection.close()
        raise _no_answer(path, exc) from exc
    if message is None or "pid" not in message:
        connection.close()
        raise Refused("the fork server has ended" if message is None else message["refused"])
    return ForkedProcess(connection, message["pid"])


def _ask(path: str, request: Request | Imports, files: Sequence[int]) -> socket.socket:
    """Send a request to the server at ``path``. Returns the connection by which it answers."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        with address(path) as server:
            connection.connect(server)
        send_request(connection, request, files)
    except OSError as exc:
        connection.close()
        raise _no_answer(path, exc) from exc
    return connection


def _no_answer(path: str, error: OSError) -> Refused:
    return Refused(f"the fork server at {path} does not answer: {error}")


def stand_in(path: str, argv: Sequence[str]) -> int | None:
    """Stand in for a fork of this command: pass signals on, and end as the fork ends.

    Returns:
        The fork's exit code; ``None`` if the server does not fork it.
    """
    env = {**os.environ, STAND_IN: str(os.getpid())}
    asked = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT}
    signal.pthread_sigmask(signal.SIG_BLOCK, asked)
    try:
        process = connect(path, Request(list(argv), env, os.getcwd()), [0, 1, 2])
    except Refused:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, asked)
        return None
    for number in asked:
        signal.signal(number, lambda number, _frame: process.send_signal(number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, asked)
    code = process.wait()
    if code < 0:  # end by the same signal
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code
