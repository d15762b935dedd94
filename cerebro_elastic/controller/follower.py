"""How does a process keep up with a run? It reads the state, and folds the events that follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import MappingProxyType
from typing import Self

from cerebro_elastic.core.history.machine import fold
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.state import State
from cerebro_elastic.errors import RunError
from cerebro_elastic.store.ledger.journal import Journal
from cerebro_elastic.store.ledger.record import Record

_STEP = 0.5
Observer = Callable[[list[Event], State], None]


class Doubtful(RunError):
    """The state that was read from the store has in it what others have written."""


def nobody(_events: list[Event], _state: State) -> None:
    """The default observer: does nothing."""


def catch_up(record: Record, journal: Journal, since: int, until: int) -> None:
    """Append to the ``journal`` what has happened from the revision ``since`` to ``until``."""
    with Follower(record, since, lambda events, _: journal.append(events)) as follower:
        while follower.heard < until:
            follower.step(_STEP)


class Follower:
    """Reads the state and follows the history from there. ``observe`` is called for each revision from
    ``since`` on, with its events and the state after them; none is left out.

    A caller that does not trust the store's present content gives the state ``known`` to start from.
    ``foreign`` are the keys that others are already known to have changed."""

    def __init__(
        self,
        record: Record,
        since: int,
        observe: Observer,
        *,
        known: State | None = None,
        foreign: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._record = record
        self._since = since
        self._observe = observe
        self._known = known
        self._foreign = foreign
        self._stack = ExitStack()
        self.state = State()

    def __enter__(self) -> Self:
        self.state = self._record.state() if self._known is None else self._known
        self._read = self.state.revision
        self._stream = self._stack.enter_context(self._record.events(self._since))
        self._stream.foreign = dict(self._foreign)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def revision(self) -> int:
        """How far it has come: the state may be of an earlier revision, if the last changes were not the
        run's."""
        return max(self.state.revision, self._stream.revision)

    @property
    def heard(self) -> int:
        """How far the history was read."""
        return self._stream.revision

    @property
    def foreign(self) -> Mapping[str, int]:
        """The keys that others were the last to change, and at which revision."""
        return self._stream.foreign

    def take_strange(self) -> set[str]:
        """The keys of others' that mean nothing to the run, each once."""
        unknown, self._stream.unknown = self._stream.unknown, set()
        return unknown

    def step(self, timeout: float | None) -> list[Event]:
        """Take in the next revision, if there is one within ``timeout`` seconds; its events. Raises
        ``Compacted`` if the store has forgotten what comes next, ``Doubtful`` if the state was read from keys
        that others had changed."""
        events = self._stream.next(timeout)
        for event in events:
            # What came before the state was read is in it.
            if event.revision > self._read:
                self.state = fold(self.state, event)
        if events:
            self._observe(events, self.state)
        if self._known is None and any(at <= self._read for at in self.foreign.values()):
            raise Doubtful("others have written to the run's record: going on from what is known of it")
        return events
