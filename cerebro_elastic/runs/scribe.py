"""The scribe: brings what configs log on many nodes to loggers, in order and once, while the run goes on.

It follows the run's record in its folder, so it misses nothing that was there before it, and its own note
says how far it has come when the run is started again. It works in a thread: a run waits for no logger.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from cerebro_elastic.core.events import ConfigCreated, Event, StateRead, UnitCommitted
from cerebro_elastic.core.values import HParams, Visit
from cerebro_elastic.files import locate, read
from cerebro_elastic.report.logged import Logged, Logger
from cerebro_elastic.report.timeline import end_of
from cerebro_elastic.store.history import decode_event

_PAUSE = 1.0
_END_SECONDS = 60.0
"""How long a run that has ended waits for its last rows to be written."""


class Scribe:
    """Follows the record ``history`` and writes to ``loggers``, by name; ``say`` is told of one that fails.
    ``note`` is a file of the scribe's own."""

    def __init__(
        self, history: Path, note: Path, loggers: Mapping[str, Logger], say: Callable[[str], None]
    ) -> None:
        self._history = history
        self._note = note
        self._loggers = dict(loggers)
        self._say = say
        self._offset = 0
        self._hparams: dict[str, HParams] = {}
        self._seen: dict[str, int] = {}
        self._written: dict[str, int] = json.loads(note.read_text()) if note.exists() else {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="scribe", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(_END_SECONDS)
        if self._thread.is_alive():
            self._say(f"the loggers {', '.join(self._loggers)} are slow: their last rows are not there yet")

    def _work(self) -> None:
        ended = False
        while not ended:
            ended = self._ended.wait(_PAUSE)  # what came before is still written
            for event in self._new_events():
                for visit in self._visits(event):
                    self._take(visit)
        for name in list(self._loggers):
            self._with(name, lambda logger: logger.close())

    def _new_events(self) -> Iterator[Event]:
        """Whole lines that the record has gained."""
        if not self._history.exists():
            return
        with self._history.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                yield decode_event(line.decode())

    def _visits(self, event: Event) -> Sequence[Visit]:
        match event:
            case ConfigCreated(config=config):
                self._hparams[config.id] = config.hparams
            case UnitCommitted(visit=visit):
                return [visit]
            case StateRead(state=state, visits=visits):
                self._hparams |= {name: config.hparams for name, config in state.configs.items()}
                self._seen.clear()
                return visits
        return []

    def _take(self, visit: Visit) -> None:
        """The n-th visit of a config, unless it was written before."""
        config = visit.unit.config
        number = self._seen[config] = self._seen.get(config, 0) + 1
        if number <= self._written.get(config, 0):
            return
        if visit.log is not None and self._loggers and (rows := self._rows(visit.log)):
            logged = Logged(config, self._hparams[config], rows, visit.started, end_of(visit))
            for name in list(self._loggers):
                self._with(name, lambda logger: logger.write(logged))
        self._written[config] = number
        self._note.write_text(json.dumps(self._written))

    def _rows(self, url: str) -> list[dict[str, float]]:
        try:
            return [json.loads(line) for line in read(locate(url)).splitlines()]
        except Exception as error:  # whatever it is: rows are for people, and the run goes on
            self._say(f"the rows at {url} cannot be read, and are missing in the loggers: {error}")
            return []

    def _with(self, name: str, act: Callable[[Logger], None]) -> None:
        try:
            act(self._loggers[name])
        except Exception as error:  # a logger is somebody else's code
            failed = self._loggers.pop(name)
            with suppress(Exception):
                failed.close()
            self._say(f"the logger {name} fails, and gets no more rows: {type(error).__name__}: {error}")
