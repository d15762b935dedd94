"""Where an etcd of a run's own listens: on a Unix socket for this machine, on an address for others."""

from __future__ import annotations

import errno
import socket
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cerebro_elastic.errors import StoreError
from cerebro_elastic.system.addresses import is_loopback, with_port, without_brackets

_WHAT = "give an address of this machine, a name that leads to one, or for all 0.0.0.0, with IPv6 ::"


@dataclass(frozen=True, slots=True)
class Listen:
    """Where clients of other machines are served."""

    host: str
    """An address of this machine, or a name that leads to one; 0.0.0.0 or :: for all addresses."""
    port: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "host", without_brackets(self.host))

    def __str__(self) -> str:
        return with_port(self.host, self.port)

    def urls(self) -> list[str]:
        """What etcd is to listen on. Raises ``StoreError`` if this machine cannot listen there."""
        addresses = self._addresses()
        for family, address in addresses:
            self._check(family, address)
        if not any(is_loopback(address[0]) == is_loopback(self.host) for _, address in addresses):
            raise StoreError(
                f"{self.host!r} leads to {addresses[0][1][0]}, which no other machine reaches: {_WHAT}"
            )
        return [f"https://{_in_url(address[0])}:{self.port}" for _, address in addresses]

    def _addresses(self) -> list[tuple[int, tuple[Any, ...]]]:
        try:
            found = socket.getaddrinfo(
                self.host, self.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
            )
        except (OSError, UnicodeError) as exc:
            raise StoreError(
                f"etcd cannot listen on {self.host!r}, which is neither an address nor a known name "
                f"({getattr(exc, 'strerror', None) or exc}): {_WHAT}; the port is an option of its own"
            ) from exc
        return list(dict.fromkeys((int(family), address) for family, _, _, _, address in found))

    def _check(self, family: int, address: tuple[Any, ...]) -> None:
        try:
            with socket.socket(family) as probe:
                # As etcd does: connections that are just ending do not count.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
        except OSError as exc:
            match exc.errno:
                case errno.EADDRINUSE:
                    advice = "stop what uses it, or give another port"
                case errno.EADDRNOTAVAIL | errno.EAFNOSUPPORT:
                    advice = f"it is no address of this machine; {_WHAT}"
                case errno.EACCES:
                    advice = "give a port from 1024 on"
                case _:
                    advice = _WHAT
            raise StoreError(
                f"port {self.port} of {address[0]} cannot be taken for etcd ({exc.strerror}): {advice}"
            ) from exc


def _in_url(address: str) -> str:
    return f"[{address.replace('%', '%25')}]" if ":" in address else address


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
