"""Addresses and paths as people write them, without a look at the network."""

from __future__ import annotations

import ipaddress
import os
import re

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


def at_home(text: str) -> str:
    """A path or URL of this machine with the user's home in the place of ``~``. A shell does that only where
    a word begins with it, and few libraries do."""
    before = re.match("(file://|sqlite:///)?(?=~)", text)
    return text if before is None else before[0] + os.path.expanduser(text[before.end() :])
