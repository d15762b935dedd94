"""Chooses the addresses of this machine to listen on: no more than are needed."""

from __future__ import annotations

import socket
from contextlib import suppress

from cerebro_elastic.system.addresses import LOOPBACK, is_loopback


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


def node_address(name: str, reaches: tuple[str, int]) -> str:
    """The address at which others find this machine, whose own name is ``name``: the name, if it stands for
    one outer address; else the address from which this machine reaches another one (host and port).

    Nothing is sent for that. Raises ``OSError`` if there is no way to that machine.
    """
    with suppress(OSError, UnicodeError):
        if listening_address(name) is not None:
            return name
    family, kind, protocol, _, target = socket.getaddrinfo(*reaches, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(target)
        return str(probe.getsockname()[0])


def loopback_interface() -> str:
    """The name of the interface whose address is loopback."""
    return next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
