"""The live page in a frame of a notebook: a server in a thread of the notebook's kernel."""

from __future__ import annotations

import atexit
import secrets
import threading
from pathlib import Path

from cerebro_elastic.system.addresses import LOOPBACK
from cerebro_elastic.ui.access import Access
from cerebro_elastic.ui.places import Places
from cerebro_elastic.ui.serve import address, make_server, open_socket

FRAMES = (
    "http://127.0.0.1:*",
    "http://localhost:*",
    "https://127.0.0.1:*",
    "https://localhost:*",
    "vscode-webview:",
    "vscode-file:",
)
"""The pages that may show the panel: Jupyter on this machine, and VS Code, which is no web site."""


class PanelServer:
    """Serves the runs of ``home`` to the browser of this machine, until this process ends.

    The token is this server's own. A notebook keeps the address with its output: it opens nothing once the
    kernel has ended.
    """

    def __init__(self, home: Path) -> None:
        self._access = Access(secrets.token_urlsafe(24), frames=FRAMES)
        self._server = make_server(Places(home), self._access)
        self._listener = open_socket(LOOPBACK, 0)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._listener]}, name="live page", daemon=True
        )
        self._thread.start()
        atexit.register(self.close)

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return int(self._listener.getsockname()[1])

    def address(self, run: str) -> str:
        """The address of a run's page, with the token."""
        return address(self._listener, LOOPBACK, run, self._access)

    def close(self) -> None:
        """End the server."""
        atexit.unregister(self.close)
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()


_servers: dict[Path, PanelServer] = {}


def panel_server(home: Path) -> PanelServer:
    """The server of this process for the runs of ``home``, started when it is first needed."""
    if home not in _servers:
        _servers[home] = PanelServer(home)
    return _servers[home]
