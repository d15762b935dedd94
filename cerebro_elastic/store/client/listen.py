"""The address on which an etcd of a run's own serves other machines."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass
from typing import Any

from cerebro_elastic.addresses import is_loopback
from cerebro_elastic.errors import StoreError

_WHAT = "give an address of this machine, a name that leads to one, or 0.0.0.0 for all"


@dataclass(frozen=True, slots=True)
class Listen:
    """Where clients of other machines are served."""

    host: str
    """An address of this machine, or a name that leads to one; 0.0.0.0 or :: for all addresses."""
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

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
