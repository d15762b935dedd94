"""The view of a run below the cell that has started it."""

from __future__ import annotations

import html
import io
import os
import socket
import sys
import threading
import time
from importlib import import_module
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Self

from rich.console import Group

from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.state import State
from cerebro_elastic.recipes import Objective
from cerebro_elastic.registry import install_extra
from cerebro_elastic.reporting.progress import progress_view, summary_line
from cerebro_elastic.reporting.terminal import html_text, terminal
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.terminal_view import TerminalView, Watcher

_PAUSE = 0.5
"""Seconds between two changes below the cell."""
_LINES = 6
"""The number of last lines about the run that stay."""
_HEIGHT = 640
"""Pixels of the frame."""
_SERVICES = ("COLAB_RELEASE_TAG", "JUPYTERHUB_USER", "KAGGLE_KERNEL_RUN_TYPE", "DATABRICKS_RUNTIME_VERSION")
"""Variables of services whose users' browsers run on another machine than the kernel."""
_FRAME = (
    '<iframe src="{address}" title="the live page of run {run}" width="100%" height="{height}" '
    'style="border: 1px solid #8884; border-radius: 6px"></iframe>'
)
_ELSEWHERE = "<details><summary>{summary}</summary><pre>{way}</pre></details>"


class NotebookView:
    """Shows a run's reports to its ``watcher`` below a cell.

    With the extra ``ui`` these are lines about the run, and the live page in a frame. Without it, or if the
    notebook's browser does not reach this machine, a table of nodes and configs is updated in place. It is
    made by the cell; as a context it covers the run, which may continue after the end of the cell.
    """

    def __init__(self, folder: RunFolder, objective: Objective) -> None:
        self._folder = folder
        self._objective = objective
        self._text = io.StringIO()
        console = terminal(file=self._text, width=110, force_jupyter=False, force_terminal=False)
        self._lines = TerminalView(objective, console, moving=False)
        self._began = time.monotonic()
        self._due = 0.0
        self._state = State()
        self._has_page = find_spec("starlette") is not None and find_spec("uvicorn") is not None
        self._framed = self._has_page and not browser_is_elsewhere()
        self._opened = False
        ipython: Any = import_module("IPython.display")
        self._status, self._page = ipython.DisplayHandle(), ipython.DisplayHandle()
        self._status.display(_Html(""))
        install = html.escape(install_extra("ui"))
        missing = f"<p>For the live page, with buttons: <code>{install}</code></p>"
        self._page.display(_Html("" if self._has_page else missing))
        self.watcher = Watcher(say=self._say, show=self._show)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._say(f"run {self._folder.run!r} has ended")
        elif threading.current_thread() is not threading.main_thread():  # no cell to show it
            self._say(str(error))
        self._draw()

    def _say(self, text: str) -> None:
        self._lines.watcher.say(text)
        self._draw()

    def _show(self, events: list[Event], state: State) -> None:
        self._state = state
        self._lines.watcher.show(events, state)
        if state.plan and not self._opened and self._has_page:
            self._opened = True
            self._page.update(_Html(self._page_html()))
        if events or time.monotonic() >= self._due:
            self._draw()

    def _draw(self) -> None:
        self._due = time.monotonic() + _PAUSE
        elapsed = time.monotonic() - self._began
        parts: list[Any] = self._text.getvalue().splitlines()[-_LINES:]
        if self._state.plan and self._framed:
            parts.append(summary_line(self._state, self._objective, elapsed))
        elif self._state.plan:
            parts.append(progress_view(self._state, self._objective, elapsed, 40))
        self._status.update(_Html(html_text(Group(*parts))))

    def _page_html(self) -> str:
        """The frame with the live page, and instructions to open it from another machine's browser."""
        from cerebro_elastic.front_end.live_page.serve import notebook_server

        server = notebook_server(self._folder.path.parent)
        address = server.address(self._folder.run)
        way = html.escape(way_to(address, server.port))
        if not self._framed:
            return _ELSEWHERE.format(summary="The live page, with buttons", way=way)
        frame = _FRAME.format(address=html.escape(address), run=html.escape(self._folder.run), height=_HEIGHT)
        return frame + _ELSEWHERE.format(summary="Nothing above? The browser is on another machine:", way=way)


class _Html:
    """HTML for a notebook. (``IPython.display.HTML`` warns about frames.)"""

    def __init__(self, text: str) -> None:
        self._text = text

    def _repr_html_(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return ""


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    if "IPython" not in sys.modules:
        return False
    from IPython.core.getipython import get_ipython

    return hasattr(get_ipython(), "kernel")


def browser_is_elsewhere() -> bool:
    """Whether the notebook's browser certainly does not reach the kernel's loopback address."""
    return any(name in os.environ for name in _SERVICES)


def way_to(address: str, port: int) -> str:
    """How a browser of another machine opens ``address`` of this machine's server on ``port``."""
    if "COLAB_RELEASE_TAG" in os.environ:
        path = address.partition(str(port))[2]
        return f"from google.colab import output\noutput.serve_kernel_port_as_window({port}, path={path!r})"
    return f"ssh -L {port}:127.0.0.1:{port} {socket.gethostname()}\n{address}"
