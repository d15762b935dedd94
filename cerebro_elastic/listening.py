"""On which of this machine's addresses to listen: on no more than are needed."""

from __future__ import annotations

import socket

from cerebro_elastic.addresses import LOOPBACK, is_loopback


def listening_address(host: str) -> str | None:
    """The address to listen at for those who know this machine as ``host``. ``None``: all that there are,
    where the name does not say, as where ``/etc/hosts`` has a loopback address for the machine's own name.
    Raises ``OSError`` for a name that cannot be found."""
    addresses = {str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    outer = sorted(address for address in addresses if not is_loopback(address))
    if is_loopback(host):
        return LOOPBACK if host == "localhost" else host
    return outer[0] if len(outer) == 1 else None


def loopback_interface() -> str:
    """The name of the interface whose address is loopback."""
    return next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
