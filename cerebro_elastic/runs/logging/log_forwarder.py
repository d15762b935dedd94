"""Forwards the rows that configs log on many nodes to a logger: in order, each row once, during the run.

The forwarder follows the run's record in its folder, so it misses nothing recorded earlier. A position
records the logger's progress for a restart of the run, or for another machine that takes over. It works in a
thread, so that the run never waits for a logger.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol, Self

from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.errors import StoreError, TrackerAway
from cerebro_elastic.reporting.logged import Logged, Logger, config_end, parent_of, read_rows
from cerebro_elastic.store.ledger.journal import JournalReader
from cerebro_elastic.system.files import as_its_folder

_PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
"""Seconds between two looks at the record. They grow while a tracker is away."""
_END_SECONDS = 60.0
"""Seconds for which an ended run waits for its last rows to be written."""


class LogPosition(Protocol):
    """A logger's progress, and the machine that writes to it now. All methods may raise ``StoreError``."""

    def ours(self) -> bool:
        """Whether this machine writes now."""

    def read(self) -> Mapping[str, int]:
        """By config, the number of its written visits; by ``end_of`` of a config, the revision of its last
        written end."""

    def write(self, name: str, number: int) -> None:
        """Note a number for ``read`` to return, if this machine writes now."""


def end_of(config: str) -> str:
    """The name for the end of a config."""
    return f"{config}/end"


class FileLogPosition:
    """A position in a file of this machine, for a logger to which no other machine writes.

    Each note is one line, so its cost does not grow with the configs. The last line of a name counts, and a
    line torn by a kill is ignored.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: dict[str, int] = {}
        for line in path.read_text().splitlines() if path.exists() else ():
            with suppress(ValueError):
                self._written |= json.loads(line)

    def ours(self) -> bool:
        return True

    def read(self) -> Mapping[str, int]:
        return self._written

    def write(self, name: str, number: int) -> None:
        self._written[name] = number
        with open(self._path, "a", encoding="utf-8", opener=as_its_folder) as file:
            file.write("\n" + json.dumps({name: number}))


class LogForwarder:
    """Follows the record ``history`` and writes to a ``logger`` while ``position`` says that this machine
    writes. A logger that ``buffers`` may lose rows of a config until the config ends, or the logger is
    closed: only then the position is noted.

    A logger that fails gets no more rows. A tracker that is away (``TrackerAway``) gets them from the record
    when it is back. ``say`` is called in both cases."""

    def __init__(
        self,
        history: Path,
        name: str,
        logger: Logger,
        position: LogPosition,
        say: Callable[[str], None],
        *,
        buffers: bool = False,
    ) -> None:
        self._history = history
        self._name = name
        self._logger = logger
        self._position = position
        self._say = say
        self._buffers = buffers
        self._buffered: dict[str, int] = {}
        self._tries = 0
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
                pause = _PAUSES[min(self._tries, len(_PAUSES) - 1)]
                ended = self._ended.wait(pause)  # earlier rows are still written
                self._try(ended)
            self._leave()
        except Exception as error:  # a logger is foreign code
            with suppress(Exception):
                self._logger.close()
            reason = f"{type(error).__name__}: {error}"
            self._say(f"the logger {self._name} fails, and gets no more rows: {reason}")

    def _try(self, ended: bool) -> None:
        """Write the new rows. Report once that the tracker is away, and once that it is back, or that it was
        away when the run ``ended``."""
        try:
            self._send()
        except StoreError:  # it is away, so the writing machine is unknown
            self._rewind()
        except TrackerAway as error:
            self._buffered.clear()
            with suppress(TrackerAway):
                self._leave()
            self._tries += 1
            if self._tries == 1:
                self._say(f"{self._name} gets nothing for now: {error}; the run continues")
            if ended:
                self._say(f"{self._name} lacks what came since then; the run's own report has it")
        else:
            if self._tries and self._written is not None:
                self._say(f"{self._name} has all again")
                self._tries = 0

    def _send(self) -> None:
        """Write the new rows, while this machine writes. Raises ``StoreError`` and the logger's errors."""
        if not self._position.ours():
            self._leave()
            return
        if self._written is None:
            self._written = dict(self._position.read())
        for event in self._reader.new_events():
            for number, visit in self._view.take(event):
                if not self._take(visit, number, self._written):
                    self._leave()
                    return
        self._write_ends(self._written)

    def _leave(self) -> None:
        """Let another machine write. When this one writes again, it continues from the position."""
        try:
            self._logger.close()
            for name in list(self._buffered):
                self._note(name)
        finally:
            self._rewind()

    def _rewind(self) -> None:
        """Go back to the record's start; written rows are not written again."""
        self._written = None
        self._reader = JournalReader(self._history)
        self._view = RunView()

    def _take(self, visit: Visit, number: int, written: dict[str, int]) -> bool:
        """Write the visit of this ``number`` among its config's, unless it was written before. Returns
        whether this machine still writes."""
        name = visit.unit.config
        if number <= written.get(name, 0):
            return True
        if visit.log is not None and (rows := self._rows(visit.log)):
            if not self._position.ours():
                return False
            config = self._view.state.configs[name]
            times = (visit.started, visit.ended)
            self._logger.write(Logged(name, config.hparams, rows, *times, parent_of(config)))
        written[name] = self._buffered[name] = number
        if not self._buffers:
            self._note(name)
        return True

    def _write_ends(self, written: dict[str, int]) -> None:
        """Write the ends of configs that were not written before."""
        for config in self._view.state.configs.values():
            name = end_of(config.id)
            if config.status is Status.LIVE or written.get(name) == config.revision:
                continue
            if not self._position.ours():
                self._leave()
                return
            self._logger.end(config_end(self._view, config))
            written[name] = self._buffered[name] = config.revision
            for noted in (config.id, name):
                self._note(noted)

    def _note(self, name: str) -> None:
        if name in self._buffered:
            with suppress(StoreError):  # the config's next visit is noted, too
                self._position.write(name, self._buffered.pop(name))

    def _rows(self, url: str) -> list[dict[str, float]]:
        try:
            return read_rows(url)
        except Exception as error:  # rows are for people only: the run continues
            self._say(f"the rows at {url} cannot be read, and are missing in {self._name}: {error}")
            return []
