"""Chooses the addresses of this machine to listen on: no more than are needed."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from cerebro_elastic.system.addresses import LOOPBACK, is_loopback

_SIOCGIFADDR = 0x8915
"""Linux' request for an interface's address."""
_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


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
    return _address_towards(*reaches)


def interface_towards(host: str, port: int) -> str | None:
    """The name of the interface whose address another machine sees that this one connects to; at an outer
    address of its own, that address's. ``None`` if no interface has it as its first. Nothing is sent."""
    address = ipaddress.ip_address(_address_towards(host, port).partition("%")[0])
    return next((name for _, name in socket.if_nameindex() if address in _addresses(name)), None)


def loopback_interface() -> str:
    """The name of the interface whose address is loopback."""
    return next(name for _, name in socket.if_nameindex() if name.startswith("lo"))


def _address_towards(host: str, port: int) -> str:
    family, kind, protocol, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(target)
        return str(probe.getsockname()[0])


def _addresses(interface: str) -> Iterator[_Address]:
    """The first address of version 4, and all of version 6."""
    with suppress(OSError), socket.socket(type=socket.SOCK_DGRAM) as any_socket:
        answer = fcntl.ioctl(any_socket, _SIOCGIFADDR, struct.pack("256s", interface.encode()))
        yield ipaddress.IPv4Address(answer[20:24])
    with suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            address, *_, name = line.split()
            if name == interface:
                yield ipaddress.IPv6Address(bytes.fromhex(address))
