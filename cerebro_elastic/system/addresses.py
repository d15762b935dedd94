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


_WITH_BUCKETS = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oci", "oss", "hf", "http", "https")
"""Protocols whose URLs begin with the name of a bucket or a host."""


def place_of(text: str) -> str:
    """A person's path or URL, with the user's home in the place of ``~``. Raises ``ValueError`` for one that
    would be read as the path of another place than was meant, with the right form."""
    text = at_home(text)
    if text.removeprefix("file://").startswith("~"):
        raise ValueError("no such user exists: write the path out")
    for part in text.split("::"):
        if url := re.match(r"([A-Za-z][\w+.-]*):(/*)(.*)", part, re.DOTALL):
            _check_url(*url.groups())
    return text


def _check_url(protocol: str, slashes: str, rest: str) -> None:
    if len(protocol) == 1 and (slashes or rest.startswith("\\")):
        raise ValueError("it is a path of Windows: give one of this machine, or a URL")
    lower = protocol.lower()
    two = lower in _WITH_BUCKETS or (slashes == "//" and lower != "file")
    right = f"{lower}:{'//' if two else '///'}{rest}"
    if slashes == "/":
        raise ValueError(f"a URL has more slashes behind its protocol: {right}")
    if slashes == "//" and lower == "file" and not rest.startswith("~"):
        raise ValueError(f"the URL of a file has three slashes: {right}")
    if slashes and protocol != lower:
        raise ValueError(f"the protocol of a URL is written in small letters: {right}")
    if slashes == "///" and protocol in _WITH_BUCKETS:
        raise ValueError(f"the URL names no bucket: {right}, if {rest.partition('/')[0]} is the bucket")
