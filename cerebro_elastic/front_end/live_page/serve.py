"""Starts the server, and finds its port: for a command, beside a run, or for a frame of a notebook."""

from __future__ import annotations

import atexit
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from cerebro_elastic.errors import MissingExtra, RunError
from cerebro_elastic.registry import install_extra
from cerebro_elastic.system.addresses import LOOPBACK, is_loopback, with_port

if TYPE_CHECKING:
    import uvicorn

    from cerebro_elastic.front_end.live_page.access import Access
    from cerebro_elastic.front_end.live_page.feeds import Places

PORT = 8470
"""The first port to try if none is given."""
_PORTS = 20
FRAMES = (
    "http://127.0.0.1:*",
    "http://localhost:*",
    "https://127.0.0.1:*",
    "https://localhost:*",
    "vscode-webview:",
    "vscode-file:",
)
"""The pages that may show the page in a frame: Jupyter on this machine, and VS Code, which is no web site."""
_END_SECONDS = 2


def open_socket(host: str, port: int | None) -> socket.socket:
    """A socket that listens on ``port`` (0: any); without one, on the first free port from ``PORT`` on.
    Raises ``RunError`` if that is impossible."""
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
    path = f"run/{quote(run, safe='')}" if run else ""
    token = "" if access.trust_header else f"?token={quote(access.token)}"
    return f"http://{with_port(host, listener.getsockname()[1])}/{path}{token}"


def check_installed() -> None:
    """Raise ``MissingExtra`` without the extra ``ui``."""
    if not (find_spec("starlette") and find_spec("uvicorn")):
        raise MissingExtra(f"the live page needs starlette and uvicorn: {install_extra('ui')}")


def make_server(places: Places, access: Access) -> uvicorn.Server:
    """The server, which ``run(sockets=[...])`` starts."""
    import uvicorn

    from cerebro_elastic.front_end.live_page.app import Server

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


class PageServer:
    """A server for this machine alone, in a thread of this process.

    Args:
        places: The place of the runs.
        access: The conditions for requests.
        port: The port to listen on, 0 for any; ``None``: the first free one from ``PORT`` on.
    """

    def __init__(self, places: Places, access: Access, port: int | None = None) -> None:
        self._access = access
        self._server = make_server(places, access)
        self._listener = open_socket(LOOPBACK, port)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._listener]}, name="live page", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return int(self._listener.getsockname()[1])

    def address(self, run: str) -> str:
        """The address of a run's page, with the token."""
        return address(self._listener, LOOPBACK, run, self._access)

    def close(self) -> None:
        """End the server."""
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()


@contextmanager
def served(places: Places, run: str) -> Iterator[str]:
    """Serve the runs; yields the address of the run's page."""
    check_installed()
    from cerebro_elastic.front_end.live_page.access import Access, kept_token

    with closing(PageServer(places, Access(kept_token(places.home)))) as server:
        yield server.address(run)


@cache
def notebook_server(home: Path) -> PageServer:
    """The server of a notebook's kernel for the runs of ``home``, started on first use. It ends with the
    kernel.

    The token is this server's own. A notebook keeps the address with its output: it is useless once the
    kernel has ended.
    """
    from cerebro_elastic.front_end.live_page.access import Access
    from cerebro_elastic.front_end.live_page.feeds import Places

    server = PageServer(Places(home), Access(secrets.token_urlsafe(24), frames=FRAMES), 0)
    atexit.register(server.close)
    return server


def check_host(host: str, *, token: str | None, trust_header: str | None) -> None:
    """Raise ``RunError`` if others would reach the page without a token or proxy."""
    if not is_loopback(host) and token is None and trust_header is None:
        raise RunError(
            f"--host {host} lets other machines reach the page: give a secret of yours with --token, or the "
            "header in which your reverse proxy names the person with --trust-header, or leave --host out"
        )
