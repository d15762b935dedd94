"""A fork server that stays when a command has ended, so that the next one finds its libraries imported.

It has imported what the last command had, but for the user's files, which each command imports itself: a
command's own fork server is a fork of it. It serves one user, environment and working directory. It ends
after ``SECONDS`` without a request, and when a file that it has imported has changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from cerebro_elastic.registry import is_library
from cerebro_elastic.system.process import PYTHON, children

STAYS = "stay"
"""The value of ``$CEREBRO_FORKSERVER`` with which servers stay."""
SECONDS = 600.0
"""For how long one stays without a request."""
TITLE = "cerebro: libraries for the next command"
_TICK = 10_000_000
"""Nanoseconds by which the clock of files may be behind."""
_OF_A_TERMINAL = ("COLUMNS", "LINES", "OLDPWD", "PWD", "SHLVL", "_")
"""Variables that differ from command to command, and of which imports take no notice."""


def socket_of(modules: Sequence[str], env: Mapping[str, str]) -> str:
    """The socket of the server that stays for commands that begin with these imports in this environment and
    working directory. Its folder is this user's alone. Raises ``OSError`` if somebody else has it, or if it
    cannot be made."""
    values = sorted((name, value) for name, value in env.items() if name not in _OF_A_TERMINAL)
    key = hashlib.sha256(json.dumps([sys.executable, os.getcwd(), *modules, values]).encode()).hexdigest()
    folder = Path(tempfile.gettempdir(), f"cerebro-stays-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise PermissionError(f"{folder} is no folder of this user")
    return str(folder / key[:32])


def stay(path: str, modules: Sequence[str], env: Mapping[str, str]) -> None:
    """Start a server at the socket ``path`` that imports the modules and stays; do not wait for it. Raises
    ``OSError`` where it cannot be started."""
    _list(modules, path)
    command = [*PYTHON, "-m", "cerebro_elastic.system.forkserver.server", path, "0"]
    nothing = subprocess.DEVNULL
    subprocess.Popen(command, env=env, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)


class Waiting:
    """The listener of a server that stays, at the socket ``path``. It ends the process in its time."""

    def __init__(self, path: str, listener: socket.socket) -> None:
        self._path = path
        self._listener = listener
        self._listener.settimeout(SECONDS)
        self._began = time.time_ns() - _TICK

    def accept(self) -> tuple[socket.socket, Any]:
        """Wait for a connection, and have it. Does not return if the server is to end."""
        while True:
            try:
                connection, sender = self._listener.accept()
            except TimeoutError:
                if not children():
                    self._end()
                continue
            if _changed_since(self._began):
                self._end()  # the client sees that, and imports for itself
            return connection, sender

    def _end(self) -> NoReturn:
        for path in (self._path, f"{self._path}.libraries"):
            with suppress(FileNotFoundError):
                os.remove(path)
        sys.exit()


def shadowed(root: str) -> list[str]:
    """The user's modules in the folder ``root`` in whose place this process has imported a library's."""
    own = [path for path in Path(root).iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    files = {path.stem: _file(sys.modules[path.stem]) for path in own if path.stem in sys.modules}
    return sorted(name for name, file in files.items() if is_library(file))


def list_libraries(path: str | os.PathLike[str]) -> None:
    """Write beside the socket ``path`` which modules of libraries this process has imported, in the order in
    which their imports began. Where the disk is full no server stays."""
    with suppress(OSError):
        _list([name for name, module in list(sys.modules.items()) if is_library(_file(module))], path)


def _list(modules: Sequence[str], path: str | os.PathLike[str]) -> None:
    Path(f"{path}.libraries").write_text(json.dumps(modules))


def listed(path: str | os.PathLike[str]) -> list[str]:
    """The modules that are listed beside the socket ``path``; none without a list."""
    try:
        names: list[str] = json.loads(Path(f"{path}.libraries").read_text())
    except (FileNotFoundError, ValueError):
        return []
    return names


def _changed_since(began: int) -> bool:
    """Whether a file that this process has imported, or a folder in which packages are installed, has changed
    since this time. What a package manager links or moves keeps its own time, and not that of its entry."""
    files = {*filter(None, map(_file, list(sys.modules.values()))), *filter(_has_packages, sys.path)}
    for path in files:
        with suppress(OSError):
            if os.stat(path).st_ctime_ns > began:
                return True
    return False


def _has_packages(folder: str) -> bool:
    return is_library(f"{folder}{os.sep}")


def _file(module: object) -> str:
    return getattr(module, "__dict__", {}).get("__file__") or ""  # asked otherwise, a lazy module would wake
