"""How does a process keep up with a run? It reads the state, and folds the following events."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Self

from cerebro_elastic.core.history.machine import fold
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.state import State
from cerebro_elastic.store.ledger.foreign import foreign_change
from cerebro_elastic.store.ledger.journal import Journal
from cerebro_elastic.store.ledger.record import Record

_STEP = 0.5
Observer = Callable[[list[Event], State], None]


def nobody(_events: list[Event], _state: State) -> None:
    """The default observer: does nothing."""


def catch_up(record: Record, journal: Journal, since: int, until: int) -> None:
    """Append the events from the revision ``since`` to ``until`` to the ``journal``."""
    with Follower(record, since, lambda events, _: journal.append(events)) as follower:
        while follower.heard < until:
            follower.step(_STEP)


class Follower:
    """Reads the state and follows the history from there. ``observe`` is called for each revision from
    ``since`` on, with its events and the state after them; none is left out."""

    def __init__(self, record: Record, since: int, observe: Observer) -> None:
        self._record = record
        self._since = since
        self._observe = observe
        self._stack = ExitStack()
        self.state = State()

    def __enter__(self) -> Self:
        self.state = self._record.state()
        self._read = self.state.revision
        self._stream = self._stack.enter_context(self._record.events(self._since))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def revision(self) -> int:
        """The last revision that it has processed: the state may be of an earlier one, if the last changes
        were not the run's."""
        return max(self.state.revision, self._stream.revision)

    @property
    def heard(self) -> int:
        """The last revision of the history that was read."""
        return self._stream.revision

    def step(self, timeout: float | None) -> list[Event]:
        """Take in the next revision, if one comes within ``timeout`` seconds; its events. Raises
        ``Compacted`` if the store has dropped the next changes, ``ForeignValue`` if others have changed a key
        of the run."""
        events = self._stream.next(timeout)
        if (change := self._stream.foreign) is not None:
            raise foreign_change(change.key, change.item)
        for event in events:
            # Earlier changes are part of the state that was read.
            if event.revision > self._read:
                self.state = fold(self.state, event)
        if events:
            self._observe(events, self.state)
        return events
