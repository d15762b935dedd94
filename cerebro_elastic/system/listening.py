"""Chooses the addresses of this machine to listen on: no more than are needed."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress

from cerebro_elastic.system.addresses import LOOPBACK, is_loopback

_FAR = ("192.0.2.1", 9), ("2001:db8::1", 9)
"""Addresses of no machine (RFC 5737 and 3849): the way to them is the way out of this network."""
_SIOCGIFADDR = 0x8915
"""Linux' request for the IPv4 address of an interface."""


def listening_address(host: str) -> str | None:
    """The address to listen on for clients that call this machine ``host``.

    ``None`` means all addresses: the name does not resolve to one outer address, for instance where
    ``/etc/hosts`` has a loopback address for the machine's own name. Raises ``OSError`` for an unknown name.
    """
    addresses = {str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    outer = sorted(address for address in addresses if not is_loopback(address))
    if is_loopback(host):
        return LOOPBACK if host == "localhost" else host
    return outer[0] if len(outer) == 1 else None


def node_address(name: str, servers: Sequence[tuple[str, int]]) -> str:
    """The address at which others find this machine, called ``name``: the one from which it reaches the first
    reachable of the ``servers`` (host and port).

    A server on this machine shows no such address. Then it is the address of ``name``, else the one from
    which this machine reaches other networks, else a loopback address. Raises ``OSError`` if no server can be
    reached.
    """
    problem: Exception = OSError("no server is given")
    for server in servers:
        try:
            found = _source(server)
        except (OSError, UnicodeError) as exc:
            problem = exc
            continue
        if not is_loopback(found):
            return found
        with suppress(OSError, UnicodeError):
            of_name = listening_address(name)
            if of_name is not None and not is_loopback(of_name):
                return of_name
        for far in _FAR:
            with suppress(OSError):
                return _source(far)
        return found
    raise problem


def own_address(known: str, servers: Sequence[tuple[str, int]]) -> str:
    """The address at which others find this machine: the ``known`` one, unless the machine has lost it
    since."""
    with suppress(OSError, UnicodeError):
        bound = listening_address(known)
        if bound is not None:
            listener_at(bound).close()
        return known
    with suppress(OSError, UnicodeError):
        return node_address(socket.gethostname(), servers)
    return known


def listener_at(address: str) -> socket.socket:
    """A socket at a free port of an address of this machine."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, 0), family=family)


def _source(server: tuple[str, int]) -> str:
    """The address of this machine from which it reaches the server. Nothing is sent."""
    family, kind, protocol, _, target = socket.getaddrinfo(*server, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(target)
        return str(probe.getsockname()[0])


def interface_towards(host: str, port: int) -> str | None:
    """The name of the interface by which this machine reaches ``host``, perhaps itself; ``None`` if that is
    unknown: other machines may resolve the name ``host`` to another one, or this is no Linux."""
    if is_loopback(host):
        return next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
    with suppress(OSError, UnicodeError):
        source = _source((host, port))
        if not is_loopback(source):
            return next((name for name, address in _interfaces() if address == source), None)
    return None


def _interfaces() -> Iterator[tuple[str, str]]:
    """The interfaces of this machine, each with an address of it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # it has none
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()))
                yield name, socket.inet_ntoa(answer[20:24])
    with suppress(OSError), open("/proc/net/if_inet6") as lines:
        for line in lines:
            digits, *_, name = line.split()
            yield name, str(ipaddress.IPv6Address(bytes.fromhex(digits)))
