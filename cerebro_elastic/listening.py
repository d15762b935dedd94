"""Chooses the addresses of this machine to listen on: no more than are needed."""

from __future__ import annotations

import socket

from cerebro_elastic.addresses import LOOPBACK, is_loopback


def listening_address(host: str) -> str | None:
    """The address to listen on for clients that know this machine as ``host``.

    ``None`` stands for all addresses: the name does not resolve to one outer address, for instance where
    ``/etc/hosts`` has a loopback address for the machine's own name. Raises ``OSError`` for an unknown name.
    """
    addresses = {str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    outer = sorted(address for address in addresses if not is_loopback(address))
    if is_loopback(host):
        return LOOPBACK if host == "localhost" else host
    return outer[0] if len(outer) == 1 else None


def loopback_interface() -> str:
    """The name of the interface whose address is loopback."""
    return next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
