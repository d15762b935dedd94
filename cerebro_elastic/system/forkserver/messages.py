"""The messages between a fork server and its clients: JSON objects over Unix sockets, each behind its
length."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

SOCKET = "CEREBRO_FORKSERVER"
"""The environment variable that names the socket of the host's fork server."""
FORK_OF = "CEREBRO_FORK_OF"
"""The environment variable that names the socket of a fork's server."""
_LENGTH = struct.Struct("!I")
_DESCRIPTORS = 3
"""Standard input, output and error."""


@dataclass(frozen=True, slots=True)
class Request:
    """A process to fork."""

    argv: Sequence[str]
    """As behind ``python -m``: the module, then its arguments."""
    env: Mapping[str, str]
    """The whole environment of the process."""
    cwd: str
    """The working directory."""
    grace_seconds: float = 0.0
    """How long it may continue, after SIGTERM, when its client has ended."""


@dataclass(frozen=True, slots=True)
class Imports:
    """Modules to import before the next process is forked."""

    modules: Sequence[str]
    """Their names, in this order."""
    root: str
    """The first folder of the search path while these are imported."""


@contextmanager
def address(path: str) -> Iterator[str]:
    """The address of the socket at ``path``: by its open folder, for an address has 107 bytes at most."""
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{os.path.basename(path)}"
    finally:
        os.close(folder)


def send(connection: socket.socket, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
    """Send one message, with open files of this process."""
    body = json.dumps(message).encode()
    data = _LENGTH.pack(len(body)) + body
    sent = socket.send_fds(connection, [data], descriptors) if descriptors else 0
    if rest := data[sent:]:
        connection.sendall(rest)


def receive(connection: socket.socket) -> dict[str, Any] | None:
    """The next message; ``None`` if the other side has closed the connection."""
    header = _read(connection, _LENGTH.size)
    body = _read(connection, *_LENGTH.unpack(header)) if header is not None else None
    return None if body is None else json.loads(body)


def send_request(connection: socket.socket, request: Request | Imports, descriptors: Sequence[int]) -> None:
    """Request a fork, or imports, with these files as standard input, output and error."""
    send(connection, {"kind": type(request).__name__, **asdict(request)}, descriptors)


def receive_request(connection: socket.socket) -> tuple[Request | Imports, list[int]] | None:
    """The request, and its three open files; ``None`` if the other side has closed, or sent something
    else."""
    header, descriptors, _, _ = socket.recv_fds(connection, _LENGTH.size, _DESCRIPTORS)
    if len(header) == _LENGTH.size and len(descriptors) == _DESCRIPTORS:
        body = _read(connection, *_LENGTH.unpack(header))
        if body is not None:
            message = json.loads(body)
            kind = Imports if message.pop("kind") == Imports.__name__ else Request
            return kind(**message), descriptors
    return None


def _read(connection: socket.socket, size: int) -> bytes | None:
    parts: list[bytes] = []
    while size:
        part = connection.recv(min(size, 1 << 20))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
