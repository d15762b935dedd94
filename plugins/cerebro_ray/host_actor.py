"""The actor of one host: it runs ``cerebro host`` as a child process and waits for it."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_TAIL_LINES = 15
_KEPT_LINES = 1_000
_ERROR = "error: "
"""The beginning of a command's error message."""


@dataclass(frozen=True, slots=True)
class HostCommand:
    """The command of a host. The actor gets it in a call: Ray stores and shows the arguments of actors'
    constructors and their environment."""

    recipe: str
    """The recipe's path: absolute, or relative to the working directory that Ray has unpacked."""
    run: str
    home: str
    """The folder of runs, the same path on all machines."""
    options: Sequence[str]
    """The other options of ``cerebro host``."""
    env: Mapping[str, str] = field(repr=False)
    """Variables for the connection to etcd, with its login and the run's key, and the settings of the run."""


@dataclass(frozen=True, slots=True)
class HostEnd:
    """How a host's process has ended."""

    exit_code: int
    """The return code of ``subprocess``."""
    tail: str
    """Its last lines."""


class HostActor:
    """One host. ``run`` lasts as long as its process; the other methods are called during that time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._leaving = False
        self._starting = threading.Lock()
        self._lines: deque[tuple[int, str]] = deque(maxlen=_KEPT_LINES)

    def run(self, command: HostCommand) -> HostEnd:
        """Run ``cerebro host`` to its end."""
        recipe = Path(command.recipe)
        if not recipe.is_absolute():
            recipe = install(Path.cwd(), Path(command.home), command.run) / recipe
        words = [sys.executable, "-P", "-m", "cerebro_elastic.cli", "host", str(recipe), *command.options]
        words += ["--run-id", command.run, "--home", command.home]
        # The host leaves the run if this process ends, however it does.
        words += ["--submitted-by", f"{os.getpid()}@{socket.gethostname()}"]
        with self._starting:
            if self._leaving:
                return HostEnd(0, "")
            self._process = subprocess.Popen(
                words,
                env={**os.environ, **command.env},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
        assert self._process.stdout is not None
        for number, line in enumerate(self._process.stdout):
            self._lines.append((number, line.rstrip("\n")))
            print(line, end="", flush=True)  # to the actor's log, which Ray's tools show
        return HostEnd(self._process.wait(), "\n".join(_tail([line for _, line in self._lines])))

    def leave(self) -> None:
        """Let the host leave the run: its nodes finish their units, or hand them on part-way."""
        with self._starting:
            self._leaving = True
            if self._process is not None:
                self._process.send_signal(signal.SIGTERM)

    def lines(self, start: int) -> tuple[list[str], int]:
        """The host's output from line ``start`` on, as far as it is kept, and the number of the next line."""
        new = [(number, line) for number, line in list(self._lines) if number >= start]
        return [line for _, line in new], new[-1][0] + 1 if new else start


def _tail(lines: Sequence[str]) -> Sequence[str]:
    """The error message of an ended command; its last lines if it has none."""
    last = lines[-_TAIL_LINES:]
    begins = [at for at, line in enumerate(last) if line.startswith(_ERROR)]
    return last[begins[-1] :] if begins else last


_PACKAGE = ".ray-package"
"""The file that names the package of Ray that was copied: the name contains a digest of the files."""


def install(unpacked: Path, home: Path, run: str) -> Path:
    """Copy the project, a working directory that Ray has unpacked, to ``<home>/<run>.project``, unless it is
    there. Other hosts may do the same at once. Returns the folder.

    Ray's own copy has a path that changes with each cluster and each change of the project, and Ray deletes
    it. A run's record names the folder of its modules, also for hosts that join later and for ``replay``.
    """
    home.mkdir(parents=True, exist_ok=True)
    target, new, old = (home / f"{run}.project{suffix}" for suffix in ("", ".new", ".old"))
    with open(home / f"{run}.project.lock", "w") as lock:  # of a folder, NFS keeps it from no other machine
        fcntl.flock(lock, fcntl.LOCK_EX)
        package = target / _PACKAGE
        if package.exists() and package.read_text() == unpacked.name:
            return target
        shutil.rmtree(new, ignore_errors=True)
        shutil.copytree(unpacked, new, symlinks=True)
        (new / _PACKAGE).write_text(unpacked.name)
        shutil.rmtree(old, ignore_errors=True)
        if target.exists():
            target.rename(old)
        new.rename(target)
        shutil.rmtree(old, ignore_errors=True)
    return target
