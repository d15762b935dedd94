"""HTTP over a Unix socket, by urllib3, and a folder for such sockets."""

from __future__ import annotations

import errno
import socket
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from urllib3 import HTTPConnectionPool
from urllib3.connection import HTTPConnection
from urllib3.exceptions import NewConnectionError

from cerebro_elastic.errors import StoreError


class _Connection(HTTPConnection):  # type: ignore[misc]
    def __init__(self, *args: Any, path: str, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._path = path

    def connect(self) -> None:
        made = socket.socket(socket.AF_UNIX)
        try:
            made.settimeout(self.timeout)
            made.connect(self._path)
        except OSError as exc:
            made.close()
            # What urllib3 raises where nothing was sent.
            raise NewConnectionError(self, str(exc)) from exc
        self.sock = made


class UnixSocketPool(HTTPConnectionPool):  # type: ignore[misc]
    """Connections to the server that listens on the socket at ``path``."""

    ConnectionCls = _Connection

    def __init__(self, path: str, **settings: Any) -> None:
        super().__init__("localhost", path=path, **settings)


def folder_for_sockets(beside: Path, name: str) -> Path:
    """``beside``, if it can have a socket ``name``, else a new private folder among the temporary ones.

    Paths of sockets may have about a hundred bytes, and some file systems have no sockets. Raises
    ``StoreError`` if there is no place.
    """
    if _can_have(beside, name):
        return beside
    for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp")):
        with suppress(OSError):
            folder = Path(tempfile.mkdtemp(prefix="cerebro-etcd-", dir=parent))
            if _can_have(folder, name):
                return folder
            folder.rmdir()
    raise StoreError(
        f"there can be no Unix socket in {beside}, nor in {tempfile.gettempdir()}: set TMPDIR to a folder "
        "with a short path (up to 70 bytes, no comma) on a file system that has sockets"
    )


def _can_have(folder: Path, name: str) -> bool:
    path = str(folder / name)
    if "," in path or not path.isprintable():  # endpoints are written in a row, with commas between them
        return False
    (folder / name).unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.bind(path)
        except OSError as exc:
            if exc.errno == errno.ENOSPC:
                raise
            return False
    (folder / name).unlink()
    return True
