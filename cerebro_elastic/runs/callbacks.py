"""Callbacks of ``run``: users' code that is called at the end of a unit, an epoch or the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.best import epoch_ends
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.state import State
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.runs.terminal_view import Watcher
from cerebro_elastic.store.ledger.journal import JournalReader


class RunCallback(Protocol):
    """Methods that ``run`` calls during a run. Subclass it and override the ones you need.

    The methods are called in the process that calls ``run``, one after the other and in the order of the
    run's history; with ``wait=False`` in the run's thread. Each unit and epoch is reported once, and those of
    an earlier start of the run are not reported again. A slow callback
    delays the next decisions, not the units in training.

    An exception in a callback stops the run on this machine as Ctrl-C does: no committed unit is lost,
    ``run`` (or ``Run.wait``) raises the exception, and the same call continues the run. Ends during the stop
    are not reported.

    Example:
        >>> epochs = []
        >>> class Collect(RunCallback):
        ...     def on_epoch_end(self, config, epoch, metrics):
        ...         epochs.append((config, epoch))
        >>> result = run("sweep.yaml", run_id="watched", epochs=1, callbacks=[Collect()])
        >>> sorted(epochs)
        [('c0000', 1), ('c0001', 1)]
    """

    def on_unit_end(self, visit: Visit) -> None:
        """A unit has been committed; ``visit`` has its config, node, seconds and metrics."""

    def on_epoch_end(self, config: str, epoch: int, metrics: Mapping[str, float]) -> None:
        """``config`` has ended its epoch number ``epoch`` (from 1) with these ``metrics``."""

    def on_run_end(self, result: RunResult) -> None:
        """The run has ended; ``run`` is about to return ``result``."""


class CallbackFailed(Exception):
    """A callback has raised ``error``. Its separate class passes handlers of the store's errors."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class CallbackCaller:
    """Calls the ``callbacks`` of a run by its record ``history``; events already recorded are not
    reported."""

    def __init__(self, callbacks: Sequence[RunCallback], history: Path) -> None:
        self._callbacks = callbacks
        self._reader = JournalReader(history)
        self._view = RunView(self._reader.new_events() if callbacks else ())

    def watching(self, watcher: Watcher) -> Watcher:
        """``watcher``, with the callbacks called at each of its updates."""

        def show(events: list[Event], state: State) -> None:
            watcher.show(events, state)
            self._report()

        return replace(watcher, show=show) if self._callbacks else watcher

    def end(self, result: RunResult) -> None:
        """Report everything not reported yet, and the run's end."""
        if self._callbacks:
            self._report()
        self._call("on_run_end", result)

    def _report(self) -> None:
        """Report each new event: first its units, then the epochs that they end."""
        for event in self._reader.new_events():
            before = self._view.state.configs
            visits = [visit for _, visit in self._view.take(event)]
            for visit in visits:
                self._call("on_unit_end", visit)
            for name in dict.fromkeys(visit.unit.config for visit in visits):
                known = before[name].epoch if name in before else 0
                for end in epoch_ends(self._view.state.curves.get(name, ())):
                    if end.epochs > known:
                        self._call("on_epoch_end", name, end.epochs, end.metrics)

    def _call(self, method: str, *arguments: object) -> None:
        for callback in self._callbacks:
            try:
                getattr(callback, method)(*arguments)
            except Exception as error:
                raise CallbackFailed(error) from error
