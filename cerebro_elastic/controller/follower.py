"""Following a run: its state, kept up with its history."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Self

from cerebro_elastic.core.events import Event
from cerebro_elastic.core.machine import fold
from cerebro_elastic.core.state import State
from cerebro_elastic.store.ledger import Ledger

Observer = Callable[[list[Event], State], None]


def nobody(_events: list[Event], _state: State) -> None:
    """Nobody observes."""


class Follower:
    """Reads the state and follows the history from there. ``observe`` is told the events of each
    revision from ``since`` on (by default: of those that come), none left out, and the state after them."""

    def __init__(self, ledger: Ledger, since: int | None = None, observe: Observer = nobody) -> None:
        self._ledger = ledger
        self._since = since
        self._observe = observe
        self._stack = ExitStack()
        self.state = State()

    def __enter__(self) -> Self:
        self.state = self._ledger.state()
        self._read = self.state.revision
        since = self._read + 1 if self._since is None else self._since
        self._stream = self._stack.enter_context(self._ledger.events(since))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def step(self, timeout: float | None) -> list[Event]:
        """Take in the next revision, if there is one within ``timeout`` seconds; its events. Raises
        ``Compacted`` if the store has forgotten what comes next."""
        events = self._stream.next(timeout)
        for event in events:
            # What came before the state was read is in it.
            if event.revision > self._read:
                self.state = fold(self.state, event)
        if events:
            self._observe(events, self.state)
        return events
