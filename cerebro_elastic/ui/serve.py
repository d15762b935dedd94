"""Starts the server, and finds its port."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import quote

from cerebro_elastic.errors import MissingExtra, RunError
from cerebro_elastic.system.addresses import LOOPBACK, is_loopback

if TYPE_CHECKING:
    import uvicorn

    from cerebro_elastic.ui.access import Access
    from cerebro_elastic.ui.places import Places

PORT = 8470
"""The first port that is tried if none is given."""
_PORTS = 20
_END_SECONDS = 2


def open_socket(host: str, port: int | None) -> socket.socket:
    """A socket that listens on ``port`` (0: any); without one, on the first free port from ``PORT`` on.
    Raises ``RunError`` if that is not possible."""
    last = OSError("no port was tried")
    for tried in range(PORT, PORT + _PORTS) if port is None else [port]:
        try:
            family = socket.getaddrinfo(host, tried, type=socket.SOCK_STREAM)[0][0]
            return socket.create_server((host, tried), family=family, backlog=128)
        except (OSError, OverflowError) as exc:
            last = exc if isinstance(exc, OSError) else OSError(str(exc))
    which = f"ports {PORT} to {PORT + _PORTS - 1}" if port is None else f"port {port}"
    raise RunError(f"cannot listen on {which} of {host}: {last}; choose another with --port") from last


def address(listener: socket.socket, host: str, run: str | None, access: Access) -> str:
    """The address to open in a browser."""
    shown = f"[{host}]" if ":" in host else host
    path = f"run/{quote(run, safe='')}" if run else ""
    token = "" if access.trust_header else f"?token={quote(access.token)}"
    return f"http://{shown}:{listener.getsockname()[1]}/{path}{token}"


def check_installed() -> None:
    """Raise ``MissingExtra`` without the extra ``ui``."""
    if not (find_spec("starlette") and find_spec("uvicorn")):
        raise MissingExtra("the live page needs starlette and uvicorn: pip install 'cerebro-elastic[ui]'")


def make_server(places: Places, access: Access) -> uvicorn.Server:
    """The server, which ``run(sockets=[...])`` starts."""
    import uvicorn

    from cerebro_elastic.ui.app import Server

    ends: list[Callable[[], bool]] = []
    app = Server(places, access, ended=lambda: any(end() for end in ends)).app
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_END_SECONDS,
    )
    server = uvicorn.Server(config)
    ends.append(lambda: server.should_exit)
    return server


@contextmanager
def served(places: Places, run: str) -> Iterator[str]:
    """Serve on this machine alone, in a thread; the address of the run's page."""
    check_installed()
    from cerebro_elastic.ui.access import Access, kept_token

    access = Access(kept_token(places.home))
    server = make_server(places, access)
    with open_socket(LOOPBACK, None) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="live page")
        thread.start()
        try:
            yield address(listener, LOOPBACK, run, access)
        finally:
            server.should_exit = True
            thread.join()


def check_host(host: str, *, token: str | None, trust_header: str | None) -> None:
    """Raise ``RunError`` if others would reach the page without a token or proxy."""
    if not is_loopback(host) and token is None and trust_header is None:
        raise RunError(
            f"--host {host} lets other machines reach the page: give a secret of yours with --token, or the "
            "header in which your reverse proxy names the person with --trust-header, or leave --host out"
        )
