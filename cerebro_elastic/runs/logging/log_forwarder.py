"""Forwards what configs log on many nodes to a logger: in order, each row once, while the run goes on.

The forwarder follows the run's record in its folder, so it misses nothing that was recorded before. A
position says how far the logger has come when the run is started again, or when another machine takes over.
It works in a thread, so that the run never waits for a logger.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol, Self

from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.core.model.events import ConfigCreated, Event, StateRead, UnitCommitted
from cerebro_elastic.errors import StoreError
from cerebro_elastic.files import locate, read, write_text
from cerebro_elastic.reporting.logged import Logged, Logger
from cerebro_elastic.runs.record_reader import RecordReader

_PAUSE = 1.0
_END_SECONDS = 60.0
"""How long a run that has ended waits for its last rows to be written."""


class LogPosition(Protocol):
    """How many visits of each config a logger has, and which machine writes to it now. All methods may raise
    ``StoreError``."""

    def ours(self) -> bool:
        """Whether this machine writes now."""

    def read(self) -> Mapping[str, int]:
        """The number of visits that were written, by config."""

    def write(self, config: str, visits: int) -> None:
        """Note that ``visits`` of ``config`` were written, if this machine writes now."""


class FileLogPosition:
    """A position in a file of this machine, for a logger that no other machine writes to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}

    def ours(self) -> bool:
        return True

    def read(self) -> Mapping[str, int]:
        return self._written

    def write(self, config: str, visits: int) -> None:
        self._written = {**self._written, config: visits}
        temporary = self._path.with_suffix(".tmp")
        write_text(temporary, json.dumps(self._written))
        temporary.replace(self._path)


class LogForwarder:
    """Follows the record ``history`` and writes to a ``logger`` while ``position`` says that this machine
    writes. A logger that fails gets no more rows; ``say`` is called then."""

    def __init__(
        self, history: Path, name: str, logger: Logger, position: LogPosition, say: Callable[[str], None]
    ) -> None:
        self._history = history
        self._name = name
        self._logger = logger
        self._position = position
        self._say = say
        self._written: dict[str, int] | None = None
        self._rewind()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"log forwarder of {name}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(_END_SECONDS)
        if self._thread.is_alive():
            self._say(f"the logger {self._name} is slow: its last rows are not there yet")

    def _work(self) -> None:
        ended = False
        try:
            while not ended:
                ended = self._ended.wait(_PAUSE)  # what came before is still written
                try:
                    self._turn()
                except StoreError:  # it is away: unknown which machine writes
                    self._rewind()
            self._leave()
        except Exception as error:  # a logger is somebody else's code
            with suppress(Exception):
                self._logger.close()
            reason = f"{type(error).__name__}: {error}"
            self._say(f"the logger {self._name} fails, and gets no more rows: {reason}")

    def _turn(self) -> None:
        """Write what is new, as long as this machine writes."""
        if not self._position.ours():
            self._leave()
            return
        if self._written is None:
            self._written = dict(self._position.read())
        for event in self._reader.new_events():
            for visit in self._visits(event):
                if not self._take(visit, self._written):
                    self._leave()
                    return

    def _leave(self) -> None:
        """Let another machine write. When this one writes again, the position says from where on."""
        if self._written is not None:
            self._logger.close()
            self._written = None
            self._rewind()

    def _rewind(self) -> None:
        """Back to the record's beginning; what is written is not written again."""
        self._reader = RecordReader(self._history)
        self._hparams: dict[str, HParams] = {}
        self._seen: dict[str, int] = {}

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

    def _take(self, visit: Visit, written: dict[str, int]) -> bool:
        """Write a config's next visit, unless it was written before; whether this machine still writes."""
        config = visit.unit.config
        number = self._seen[config] = self._seen.get(config, 0) + 1
        if number <= written.get(config, 0):
            return True
        if visit.log is not None and (rows := self._rows(visit.log)):
            if not self._position.ours():
                return False
            self._logger.write(Logged(config, self._hparams[config], rows, visit.started, visit.ended))
        written[config] = number
        with suppress(StoreError):  # the config's next visit is noted, too
            self._position.write(config, number)
        return True

    def _rows(self, url: str) -> list[dict[str, float]]:
        try:
            return [json.loads(line) for line in read(locate(url)).splitlines()]
        except Exception as error:  # rows are for people only: the run goes on
            self._say(f"the rows at {url} cannot be read, and are missing in {self._name}: {error}")
            return []
