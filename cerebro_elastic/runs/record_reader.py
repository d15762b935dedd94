"""Reading a run's record while it grows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cerebro_elastic.core.model.events import Event
from cerebro_elastic.store.ledger.history import decode_event
from cerebro_elastic.store.ledger.journal import split_digest


class RecordReader:
    """Reads each event of the record ``history`` once."""

    def __init__(self, history: Path) -> None:
        self._history = history
        self._offset = 0

    def new_events(self) -> Iterator[Event]:
        """The events that the record has gained since the last call, as far as their lines are whole."""
        if not self._history.exists():
            return
        with self._history.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                yield decode_event(split_digest(line.decode())[0])
