"""The scribe: brings what configs log on many nodes to a logger, in order and once, while the run goes on.

It follows the run's record in its folder, so it misses nothing that was there before it, and a note says how
far the logger has come when the run is started again, or another machine writes on. It works in a thread: a
run waits for no logger.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol, Self

from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.core.model.events import ConfigCreated, Event, StateRead, UnitCommitted
from cerebro_elastic.errors import StoreError
from cerebro_elastic.files import locate, read, write_text
from cerebro_elastic.reporting.logged import Logged, Logger
from cerebro_elastic.store.ledger.history import decode_event
from cerebro_elastic.store.ledger.journal import split_digest

_PAUSE = 1.0
_END_SECONDS = 60.0
"""How long a run that has ended waits for its last rows to be written."""


class Note(Protocol):
    """How many visits of each config a logger has, and whose turn it is to write to it. All verbs may raise
    ``StoreError``."""

    def ours(self) -> bool:
        """Whether it is our turn."""

    def read(self) -> Mapping[str, int]:
        """What has been written by now."""

    def write(self, config: str, visits: int) -> None:
        """Note it, unless it is another's turn."""


class FileNote:
    """A note in a file of this machine, for a logger that nobody else writes to."""

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
    """Follows the record ``history`` and writes to a ``logger`` when the ``note`` says that it is our turn.
    ``say`` is told if it fails; it gets no more rows from us then."""

    def __init__(
        self, history: Path, name: str, logger: Logger, note: Note, say: Callable[[str], None]
    ) -> None:
        self._history = history
        self._name = name
        self._logger = logger
        self._note = note
        self._say = say
        self._written: dict[str, int] | None = None
        self._rewind()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"scribe of {name}", daemon=True)

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
                except StoreError:  # it is away, and whose turn it is not known
                    self._rewind()
            self._leave()
        except Exception as error:  # a logger is somebody else's code
            with suppress(Exception):
                self._logger.close()
            told = f"{type(error).__name__}: {error}"
            self._say(f"the logger {self._name} fails, and gets no more rows: {told}")

    def _turn(self) -> None:
        """Write what is new, as long as it is our turn."""
        if not self._note.ours():
            self._leave()
            return
        if self._written is None:
            self._written = dict(self._note.read())
        for event in self._new_events():
            for visit in self._visits(event):
                if not self._take(visit, self._written):
                    self._leave()
                    return

    def _leave(self) -> None:
        """Another writes on, or nobody: whenever it is our turn again, the note says from where on."""
        if self._written is not None:
            self._logger.close()
            self._written = None
            self._rewind()

    def _rewind(self) -> None:
        """Back to the record's beginning; what is written is not written again."""
        self._offset = 0
        self._hparams: dict[str, HParams] = {}
        self._seen: dict[str, int] = {}

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
                yield decode_event(split_digest(line.decode())[0])

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
        """Write the n-th visit of a config, unless it was written before; whether it still is our turn."""
        config = visit.unit.config
        number = self._seen[config] = self._seen.get(config, 0) + 1
        if number <= written.get(config, 0):
            return True
        if visit.log is not None and (rows := self._rows(visit.log)):
            if not self._note.ours():
                return False
            self._logger.write(Logged(config, self._hparams[config], rows, visit.started, visit.ended))
        written[config] = number
        with suppress(StoreError):  # the config's next visit is noted, too
            self._note.write(config, number)
        return True

    def _rows(self, url: str) -> list[dict[str, float]]:
        try:
            return [json.loads(line) for line in read(locate(url)).splitlines()]
        except Exception as error:  # whatever it is: rows are for people, and the run goes on
            self._say(f"the rows at {url} cannot be read, and are missing in {self._name}: {error}")
            return []
