"""What does an address say by itself, without a question to this machine or the network?"""

from __future__ import annotations

import ipaddress
import socket

LOOPBACK = "127.0.0.1"


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine is reached by ``host``, an address or ``localhost``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def listening_address(host: str) -> str | None:
    """The address to listen at for those who know this machine as ``host``. ``None``: all that there are,
    where the name does not say, as where ``/etc/hosts`` has a loopback address for the machine's own name.
    Raises ``OSError`` for a name that cannot be found."""
    found = {str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    outer = sorted(address for address in found if not is_loopback(address))
    if is_loopback(host):
        return LOOPBACK if host == "localhost" else host
    return outer[0] if len(outer) == 1 else None


def loopback_interface() -> str:
    """The name of the interface whose address is loopback."""
    return next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
