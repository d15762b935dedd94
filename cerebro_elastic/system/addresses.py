"""Facts about addresses that follow from their text, without a look at this machine or the network."""

from __future__ import annotations

import ipaddress

LOOPBACK = "127.0.0.1"


def is_loopback(host: str) -> bool:
    """Whether ``host``, an address or ``localhost``, reaches this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def without_brackets(host: str) -> str:
    """``host``, where an IPv6 address may stand in brackets, as it does before a port."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def with_port(host: str, port: int | str) -> str:
    """``HOST:PORT``, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
