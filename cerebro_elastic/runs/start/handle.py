"""The handle of a run in the background: its status, and its control."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

from rich.console import Group, RenderableType
from rich.text import Text

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.state import State
from cerebro_elastic.errors import RunError, did_you_mean
from cerebro_elastic.recipes import Objective
from cerebro_elastic.reporting.progress import progress_view
from cerebro_elastic.reporting.terminal import html_text
from cerebro_elastic.runs.control import configs
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.live import Watcher
from cerebro_elastic.runs.results.result import RunResult

_LINES = 40
"""The most lines of nodes and configs below a cell."""
Phase: TypeAlias = Literal["starting", "running", "ended", "stopped", "failed"]


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The status of a run in the background."""

    phase: Phase
    """``starting`` until nodes and configs are registered; ``stopped`` if it was closed before its end."""
    message: str
    """The last line that the run has reported, or the error with which it failed."""
    configs: Mapping[str, Config]
    """The configs by id, with status, epoch and last metrics."""
    nodes: tuple[str, ...]
    """The names of the registered nodes."""


_handles: dict[str, RunHandle] = {}
"""The runs that this process has in the background, or had, by id."""


class _Closed(Exception):
    """The handle was closed before the run's end."""


class RunHandle:
    """A run that goes on in the background: what ``run(..., wait=False)`` returns.

    The run is led by a thread of this process, so that a recipe may have Python objects and callbacks see
    yours; its nodes are processes of their own, as always. Use it as a context manager: a run that has not
    ended is stopped with the block, as by Ctrl-C, and so it is when this process exits. What was committed is
    safe, and the same call of ``run`` goes on with it.

    Example:
        >>> with run("sweep.yaml", run_id="background", wait=False) as handle:
        ...     phase = handle.status().phase
        ...     result = handle.wait()
        >>> phase
        'starting'
        >>> handle.status().phase
        'ended'
        >>> result.best.status
        <Status.FINISHED: 'finished'>
    """

    def __init__(
        self,
        folder: RunFolder,
        store: StoreSettings | None,
        start: Callable[[Watcher], RunResult],
        watcher: Watcher,
        objective: Objective,
    ) -> None:
        self.run = folder.run
        """The run's id."""
        self._folder = folder
        self._store = store
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
        _handles[folder.run] = self

    @staticmethod
    def of(run: str) -> RunHandle:
        """The handle of a run that this process has in the background, by the run's id.

        Raises:
            RunError: This process has started no such run in the background; the message lists its runs.
        """
        if run not in _handles:
            raise RunError(
                f"this process has no run {run!r} in the background; {did_you_mean(run, _handles)}"
            )
        return _handles[run]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()
        if kind is None and self._error is not None and not self._interrupted and not self._raised:
            self.wait()

    def __repr__(self) -> str:
        message = f": {self._message}" if self._message else ""
        return f"<RunHandle {self.run!r}, {self._phase()}{message}>"

    def _repr_html_(self) -> str:
        """How the run stands now, in a notebook."""
        if self._result is not None:
            return self._result._repr_html_()
        lines: list[RenderableType] = [Text(repr(self))]
        if self._state.plan is not None:
            lines.append(progress_view(self._state, self._objective, None, _LINES))
        return html_text(Group(*lines))

    def status(self) -> RunStatus:
        """The present status of the run."""
        return RunStatus(self._phase(), self._message, self._state.configs, tuple(self._state.nodes))

    def stop(self, config: str, *, reason: str = "stopped by hand") -> Config:
        """Stop a config, as ``cerebro_elastic.stop`` does."""
        return configs.stop(self.run, config, reason=reason, home=self._home, store=self._store)

    def resume(self, config: str, *, reason: str = "resumed by hand") -> Config:
        """Resume a config, as ``cerebro_elastic.resume`` does."""
        return configs.resume(self.run, config, reason=reason, home=self._home, store=self._store)

    def clone(
        self, config: str, hparams: Mapping[str, Any] | None = None, *, start: configs.Start = "here"
    ) -> Config:
        """Clone a config, as ``cerebro_elastic.clone`` does."""
        return configs.clone(self.run, config, hparams, start=start, home=self._home, store=self._store)

    def wait(self, timeout: float | None = None) -> RunResult:
        """Wait for the run's end and return its result.

        Args:
            timeout: Seconds to wait at most.

        Raises:
            TimeoutError: The run has not ended by then; it goes on.
            RunError: The run was closed before its end.
            Exception: What the run, or one of its callbacks, has raised.
        """
        # Not by join(): Python 3.11 takes a thread for ended when Ctrl-C has interrupted that.
        if not self._ended.wait(timeout):
            raise TimeoutError(f"run {self.run!r} has not ended within {timeout:g} s; it goes on")
        if self._error is not None:
            self._raised = True
            raise self._error
        assert self._result is not None
        return self._result

    def close(self) -> None:
        """Stop the run on this machine, if it has not ended, and wait until nothing of it is left here. While
        the recipe is being checked, that takes until the check's end."""
        self._closing.set()
        self._ended.wait()
        self._thread.join()
        atexit.unregister(self.close)

    @property
    def _home(self) -> str:
        return str(self._folder.path.parent)

    def _phase(self) -> Phase:
        if not self._ended.is_set():
            return "running" if self._state.nodes and self._state.configs else "starting"
        if self._error is None:
            return "ended"
        return "stopped" if self._interrupted else "failed"

    def _work(self) -> None:
        try:
            self._result = self._start(Watcher(self._say, self._show))
        except _Closed:
            self._error = RunError(
                f"run {self.run!r} was stopped before its end: the same call of `run` goes on with it"
            )
        except BaseException as error:  # for wait()
            self._error, self._message = error, str(error)
        finally:
            atexit.unregister(self.close)
            self._ended.set()

    def _say(self, text: str) -> None:
        self._message = text
        self._watcher.say(text)
        if threading.current_thread() is self._thread:  # loggers say something in theirs
            self._end_if_closing()

    def _show(self, events: list[Event], state: State) -> None:
        self._state = state
        self._watcher.show(events, state)
        self._end_if_closing()

    def _end_if_closing(self) -> None:
        """Once: what is said while the run is being stopped must not interrupt that."""
        if self._closing.is_set() and not self._interrupted:
            self._interrupted = True
            raise _Closed
