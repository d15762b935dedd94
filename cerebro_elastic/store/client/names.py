"""Looks the names of servers up, for a limited time: ``getaddrinfo`` has no limit of its own, and no signal
interrupts it. Where no name server answers it takes tens of seconds."""

from __future__ import annotations

import ipaddress
import queue
import socket
import threading

from cerebro_elastic.system.departure import within

_SECONDS, _LEAST_SECONDS = 5.0, 0.3
"""How long a name server may take to answer: normally, and if this process should have left."""


def check_name(host: str) -> None:
    """Raise ``OSError`` unless ``host`` is an address, or a name that is known here in time."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
        return
    except ValueError:
        pass
    answers: queue.SimpleQueue[OSError | None] = queue.SimpleQueue()
    # It cannot be ended. Nobody waits for it.
    threading.Thread(target=_look_up, args=(host, answers), name=f"look up {host}", daemon=True).start()
    try:
        problem = answers.get(timeout=within(_SECONDS, _LEAST_SECONDS))
    except queue.Empty:
        problem = socket.gaierror(socket.EAI_AGAIN, "no name server answers")
    if problem is not None:
        raise problem


def _look_up(host: str, answers: queue.SimpleQueue[OSError | None]) -> None:
    try:
        socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        answers.put(None)
    except OSError as exc:
        answers.put(exc)
    except UnicodeError as exc:
        answers.put(OSError(str(exc)))
