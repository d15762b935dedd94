"""A run led by a thread of this process."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from types import TracebackType

from rich.console import Group, RenderableType
from rich.text import Text

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.state import State
from cerebro_elastic.errors import RunError, RunFailed
from cerebro_elastic.recipes import Objective
from cerebro_elastic.reporting.progress import progress_view
from cerebro_elastic.reporting.terminal import html_text
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.recorded import Phase, RunStatus, phase_of
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.runs.run import Run
from cerebro_elastic.runs.terminal_view import Watcher

_LINES = 40
"""The most lines of nodes and configs below a cell."""


class _Closed(Exception):
    """The run was closed before its end."""


class BackgroundRun(Run):
    """The run returned by ``run(..., wait=False)``."""

    def __init__(
        self,
        folder: RunFolder,
        store: StoreSettings | None,
        start: Callable[[Watcher], RunResult],
        watcher: Watcher,
        objective: Objective,
    ) -> None:
        super().__init__(folder, store)
        self._start = start
        self._watcher = watcher
        self._objective = objective
        self._state = State()
        self._message = ""
        self._closing = threading.Event()
        self._ended = threading.Event()
        self._interrupted = False
        self._result: RunResult | None = None
        self._error: BaseException | None = None
        self._raised = False
        self._thread = threading.Thread(target=self._work, name=f"run {folder.run}", daemon=True)
        atexit.register(self.close)
        self._thread.start()
        Run.in_background[folder.path] = self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if kind is None and self._error is not None and not self._interrupted and not self._raised:
            self.wait()

    def __repr__(self) -> str:
        message = f": {self._message}" if self._message else ""
        return f"<Run {self.id!r}, {self._phase()}{message}>"

    def _repr_html_(self) -> str:
        """The present state of the run, for a notebook."""
        if self._result is not None:
            return self._result._repr_html_()
        lines: list[RenderableType] = [Text(repr(self))]
        if self._state.plan is not None:
            lines.append(progress_view(self._state, self._objective, None, _LINES))
        return html_text(Group(*lines))

    def status(self) -> RunStatus:
        return RunStatus(self._phase(), self._state, self._message)

    def wait(self, timeout: float | None = None) -> RunResult:
        # Not by join(): in Python 3.11 a thread counts as ended after Ctrl-C has interrupted that.
        if not self._ended.wait(timeout):
            raise TimeoutError(f"run {self.id!r} has not ended within {timeout:g} s; it continues")
        if self._error is not None:
            self._raised = True
            raise self._error
        assert self._result is not None
        return self._result

    def close(self) -> None:
        self._closing.set()
        self._ended.wait()
        self._thread.join()
        atexit.unregister(self.close)

    def _phase(self) -> Phase:
        if not self._ended.is_set():
            return phase_of(self._state, live=True)
        if self._error is None:
            return "ended"
        return "stopped" if self._interrupted else "failed"

    def _work(self) -> None:
        try:
            self._result = self._start(Watcher(self._say, self._show))
        except _Closed:
            self._error = RunError(
                f"run {self.id!r} was stopped before its end: the same call of `run` continues it"
            )
        except BaseException as error:  # for wait()
            self._error, self._message = error, str(error)
            self._result = error.result if isinstance(error, RunFailed) else None
        finally:
            atexit.unregister(self.close)
            self._ended.set()

    def _say(self, text: str) -> None:
        self._message = text
        self._watcher.say(text)
        if threading.current_thread() is self._thread:  # loggers report from their own threads
            self._end_if_closing()

    def _show(self, events: list[Event], state: State) -> None:
        self._state = state
        self._watcher.show(events, state)
        self._end_if_closing()

    def _end_if_closing(self) -> None:
        """End the run once: messages during the stop must not interrupt it."""
        if self._closing.is_set() and not self._interrupted:
            self._interrupted = True
            raise _Closed
