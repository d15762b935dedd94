"""A run's record in the store, for every process to read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TypeVar

from cerebro_elastic.core.history.keys import Keys
from cerebro_elastic.core.model.attempts import Attempt, Visit
from cerebro_elastic.core.model.configs import Config, Parent
from cerebro_elastic.core.model.events import Event, HomesAssigned, StateRead
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Unit
from cerebro_elastic.errors import RunError
from cerebro_elastic.store.client.base import Change, KeyValue, Store, Watch
from cerebro_elastic.store.client.sealed import SealedStore, unsigned
from cerebro_elastic.store.ledger.foreign import ForeignValue, number_in, value_in
from cerebro_elastic.store.ledger.history import events_of, leader_in, state_of, visits_in
from cerebro_elastic.system.run_key import FILE_VARIABLE, VARIABLE, RunKey

T = TypeVar("T")

_SEVERAL_PACKETS = 4096
"""Bytes that take several packets of a usual network, and one of a network that has packets of 9000 bytes."""


def refuse(error: ForeignValue) -> None:
    """Raise ``error``: a foreign value is not tolerated."""
    raise error


class Record:
    """One run's record in a store.

    Args:
        key: The key with which the run's values are signed; ``None`` if they are unsigned, or to read them
            unchecked.
        unreadable: Called with the error where a key that is read alone holds a foreign value. Unless it
        raises, the reader continues as if no such key existed.
    """

    def __init__(
        self,
        store: Store,
        run: str,
        key: RunKey | None = None,
        unreadable: Callable[[ForeignValue], None] = refuse,
    ) -> None:
        self.keys = Keys(run)
        self.store = SealedStore(store, self.keys.has_value, key)
        self._key = key
        self.unreadable = unreadable

    def check_signed(self, trusted: bool) -> None:
        """Raise ``RunError`` unless the run's spec, which names the code to import, can be trusted.

        It can if it is signed with our key or, if it is not signed, lies in an etcd that is ``trusted``.
        """
        item = self.store.bare.get(self.keys.spec)
        if item is None:
            return
        run, signed = self.keys.run, self.store.signed(item)
        theirs = (
            f"take that of the machine that opened the run: by {FILE_VARIABLE} name a copy of the file `key` "
            f"in the run's folder there, or set {VARIABLE} to its content"
        )
        if signed is None and self._key is None:
            raise RunError(f"run {run!r} is signed with a key, and here is none: {theirs}")
        if signed is None:
            raise RunError(f"run {run!r} is signed with another key than the one here: {theirs}")
        if not signed and self._key is not None:
            raise RunError(
                f"run {run!r} is not signed, and here is a key for it: somebody without the key has written "
                f"it, or it was opened without one; then unset {VARIABLE} and {FILE_VARIABLE}"
            )
        if not signed and not trusted:
            raise RunError(
                f"run {run!r} is not signed, and anyone who reaches its etcd may have written it: nodes "
                f"would run their code. Open it with a key (`cerebro run` makes one; {VARIABLE}), or use an "
                "etcd with login and TLS"
            )

    def spec(self) -> Spec | None:
        """The run's spec, ``None`` if it has none. Raises ``RunError`` if it is not signed with our key."""
        item = self.store.get(self.keys.spec)
        if item is not None and unsigned(item):
            self.check_signed(trusted=True)
        return self.value_in(item, Spec) if item is not None else None

    def exchange_packets(self) -> None:
        """Exchange with the store a request and an answer that take packets of full size. Raises
        ``StoreUnavailable`` where the network loses those."""
        self.store.bare.get(self.keys.prefix + "-" * _SEVERAL_PACKETS)
        self.store.bare.get(self.keys.spec)

    def state(self) -> State:
        """The run's state now."""
        return state_of(self.store.range(self.keys.prefix), self.keys)

    def read(self) -> StateRead:
        """The run's state now, with the visits that led to it."""
        snapshot = self.store.range(self.keys.prefix)
        items = (item for item in snapshot.items if self.keys.split(item.key)[0] == "visits")
        visits = visits_in(items, self.keys)
        return StateRead(snapshot.revision, state_of(snapshot, self.keys), tuple(visits))

    def homes(self) -> Mapping[int, Sequence[str]]:
        """By training partition: its home nodes; none before the leader has assigned homes."""
        assigned = self._read(self.keys.homes, HomesAssigned)
        return {} if assigned is None else assigned.homes

    def now(self) -> int:
        """The revision of the store, which other runs may share."""
        return self.store.range(self.keys.event).revision

    def revision(self) -> int:
        """The revision of the last transaction; 0 before the first."""
        item = self.store.get(self.keys.event)
        return item.mod_revision if item else 0

    def ended(self) -> bool:
        """Whether the run has ended."""
        return self.store.get(self.keys.outcome) is not None

    def leader(self) -> str | None:
        """The leader's name."""
        item = self.store.get(self.keys.leader)
        return leader_in(item) if item else None

    def is_led(self) -> bool:
        """Whether the run has a leader; a leader key without a lease is foreign."""
        item = self.store.get(self.keys.leader)
        return item is not None and item.lease != 0

    def logged(self) -> dict[str, int]:
        """By config, how many visits the leader has written to the run's loggers."""
        prefix = self.keys.logged("")
        items = self.store.range(prefix).items
        numbers = [(item.key, self._known(partial(number_in, item))) for item in items]
        return {key.removeprefix(prefix): visits for key, visits in numbers if visits is not None}

    def config(self, config: str) -> Config | None:
        return self._read(self.keys.config(config), Config)

    def node(self, name: str) -> Node | None:
        """The node, if it is registered."""
        return self._read(self.keys.node(name), Node)

    def assignment(self, node: str, *, second: bool = False) -> Attempt | None:
        """The attempt that is assigned to the node, by the first or the ``second`` of its two keys."""
        return self._read(self.keys.assign(node, second=second), Attempt)

    def assignments(self, node: str) -> list[Attempt]:
        """The attempts that are assigned to the node, in its order."""
        both = [self.assignment(node, second=second) for second in (False, True)]
        return sorted((attempt for attempt in both if attempt), key=lambda attempt: attempt.token)

    def saving(self, node: str) -> Attempt | None:
        """The trained attempt that the node saves beside its next unit."""
        return self._read(self.keys.saving(node), Attempt)

    def children(self, config: str) -> dict[str, Parent]:
        """The configs that began with a checkpoint of ``config``, each with that checkpoint."""
        prefix = self.keys.children(config)
        items = self.store.range(prefix).items
        return {item.key.removeprefix(prefix): value_in(item, self.keys, Parent) for item in items}

    def holds(self, node: str, lease: int) -> bool:
        """Whether the node is registered under this ``lease``."""
        item = self.store.get(self.keys.node(node))
        return item is not None and item.lease == lease

    def visit(self, unit: Unit, k: int) -> Visit | None:
        """The ``k``-th visit of the unit's epoch."""
        visit = self._read(self.keys.visit(unit, k), Visit)
        return visit and replace(visit, revision=0)

    def visits(self) -> list[Visit]:
        """All committed visits, in the order of their commits."""
        return visits_in(self.store.range(self.keys.prefix + "visits/").items, self.keys)

    def visits_of(self, config: str, epoch: int | None = None) -> list[Visit]:
        """A config's visits, in order; those of one ``epoch``, if it is given."""
        items = self.store.range(self.keys.visits(config, epoch)).items
        return [visit for item in items for visit in visits_in([item], self.keys)]

    @contextmanager
    def events(self, start: int) -> Iterator[EventStream]:
        """The history from revision ``start`` on."""
        with self.store.watch(self.keys.prefix, start) as watch:
            yield EventStream(watch, self.keys)

    def history(self) -> list[Event]:
        """All that has happened up to now. Raises ``Compacted`` if the store has forgotten its beginning."""
        items = self.store.range(self.keys.prefix).items
        # Nodes may join before the run is opened.
        event = next((item for item in items if item.key == self.keys.event), None)
        history: list[Event] = []
        if event is not None:
            last = max(item.mod_revision for item in items)
            with self.events(event.create_revision) as stream:
                while stream.revision < last:
                    history += stream.next()
        return history

    def _read(self, key: str, kind: type[T]) -> T | None:
        item = self.store.get(key)
        return self.value_in(item, kind) if item is not None else None

    def value_in(self, item: KeyValue, kind: type[T]) -> T | None:
        """The value of ``item``; ``None`` if that is foreign, and ``unreadable`` does not raise."""
        return self._known(partial(value_in, item, self.keys, kind))

    def _known(self, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except ForeignValue as error:
            self.unreadable(error)
            return None


class EventStream:
    """A run's events as they happen."""

    def __init__(self, watch: Watch, keys: Keys) -> None:
        self._watch = watch
        self._keys = keys
        self.revision = 0
        """The last revision that was read."""
        self.foreign: Change | None = None
        """The last change of a key of the run's that others than its processes have made."""

    def next(self, timeout: float | None = None) -> list[Event]:
        """The events of the next revision, perhaps none; none after ``timeout`` seconds without a
        revision."""
        batch = self._watch.next(timeout)
        if batch is None:
            return []
        self.revision = batch.revision
        events, foreign = events_of(batch, self._keys)
        known = (change for change in foreign if self._keys.is_known(change.key))
        self.foreign = next(known, self.foreign)
        return events
