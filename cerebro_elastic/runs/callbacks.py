"""Callbacks of ``run``: users' code that is called when a unit, an epoch or the run has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from cerebro_elastic.core.history.lineage import born
from cerebro_elastic.core.history.machine import fold
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.events import Event, StateRead, UnitCommitted
from cerebro_elastic.core.model.state import State
from cerebro_elastic.reporting.results import epoch_ends
from cerebro_elastic.runs.live import Watcher
from cerebro_elastic.runs.record_reader import RecordReader
from cerebro_elastic.runs.results.result import RunResult

T = TypeVar("T")


class RunCallback(Protocol):
    """What ``run`` calls while a run goes on. Subclass it and override what you need.

    The methods are called in the process that calls ``run``, one after the other and in the order of the
    run's history; with ``wait=False`` in the run's thread. Each unit and epoch is reported once, and those of
    an earlier start of the run are not reported again. A slow callback
    delays the next decisions, not the units that are being trained.

    An exception in a callback stops the run on this machine as Ctrl-C does: nothing that was committed is
    lost, ``run`` (or ``RunHandle.wait``) raises the exception, and the same call goes on with the run. What
    ends while the run is being stopped is not reported.

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
    """A callback has raised ``error``. As a class of its own it passes what handles errors of the store."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class CallbackCaller:
    """Calls the ``callbacks`` of a run by its record ``history``; what the record has by now is not
    reported."""

    def __init__(self, callbacks: Sequence[RunCallback], history: Path) -> None:
        self._callbacks = callbacks
        self._reader = RecordReader(history)
        self._state = State()
        self._reported: set[tuple[str, int, int]] = set()
        for event in self._reader.new_events() if callbacks else ():
            for _ in self._calls(event):
                pass

    def watching(self, watcher: Watcher) -> Watcher:
        """``watcher``, with the callbacks called whenever something is shown."""

        def show(events: list[Event], state: State) -> None:
            watcher.show(events, state)
            self._report()

        return Watcher(watcher.say, show) if self._callbacks else watcher

    def end(self, result: RunResult) -> None:
        """Report what has not been reported yet, and the run's end."""
        if self._callbacks:
            self._report()
        for callback in self._callbacks:
            _guarded(callback.on_run_end, result)

    def _report(self) -> None:
        for event in self._reader.new_events():
            for call in self._calls(event):
                for callback in self._callbacks:
                    _guarded(call, callback)

    def _calls(self, event: Event) -> Iterator[Callable[[RunCallback], None]]:
        """What follows from ``event`` for each callback: units first, then the epochs that they end."""
        before = self._state.configs
        self._state = fold(self._state, event)
        match event:
            case UnitCommitted(visit=visit):
                self._reported.add(_key(visit))
                yield _unit_end(visit)
                config = self._state.configs[visit.unit.config]
                if config.epoch > before[config.id].epoch:
                    yield _epoch_end(config)
            case StateRead(state=state, visits=visits):
                yield from (_unit_end(visit) for visit in visits if _key(visit) not in self._reported)
                self._reported = {_key(visit) for visit in visits}
                for config in state.configs.values():
                    known = before[config.id].epoch if config.id in before else born(config).epoch
                    own = [visit for visit in visits if visit.unit.config == config.id]
                    ends = epoch_ends(config, own, state.plan) if state.plan else []
                    yield from (_epoch_end(at) for at, _ in ends if at.epoch > known)


def _unit_end(visit: Visit) -> Callable[[RunCallback], None]:
    return lambda callback: callback.on_unit_end(visit)


def _epoch_end(config: Config) -> Callable[[RunCallback], None]:
    return lambda callback: callback.on_epoch_end(config.id, config.epoch, config.metrics)


def _key(visit: Visit) -> tuple[str, int, int]:
    return visit.unit.config, visit.unit.epoch, visit.index_in_epoch


def _guarded(call: Callable[[T], None], argument: T) -> None:
    try:
        call(argument)
    except Exception as error:
        raise CallbackFailed(error) from error
