"""What a run's record says, for anybody to read; and the way in which all that is said gets there: as one
guarded transaction, which is one event."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from cerebro_elastic.core.codec import UnreadableValue, decode
from cerebro_elastic.core.events import Event, StateRead
from cerebro_elastic.core.state import State
from cerebro_elastic.core.values import Attempt, Config, Node, Parent, Spec, Visit
from cerebro_elastic.errors import RunError
from cerebro_elastic.run_key import FILE_VARIABLE, VARIABLE, RunKey
from cerebro_elastic.store.base import Compare, Op, Put, Store, Watch
from cerebro_elastic.store.changes import value_of
from cerebro_elastic.store.history import (
    attempt_of,
    config_of,
    events_of,
    node_of,
    saving_of,
    state_of,
    visits_in,
)
from cerebro_elastic.store.keys import Keys
from cerebro_elastic.store.sealed import SealedStore


class Record:
    """One run's record in a store, signed with the run's ``key`` if it has one."""

    def __init__(self, store: Store, run: str, key: RunKey | None = None) -> None:
        self.keys = Keys(run)
        self.store = SealedStore(store, self.keys.has_value, key)
        self._key = key

    def check_signed(self, trusted: bool) -> None:
        """Raise ``RunError`` unless what the run's spec says can be believed, such as which code to import:
        it is signed with our key or, if it is not signed, lies in an etcd that is ``trusted``."""
        item = self.store.bare.get(self.keys.spec)
        if item is None:
            return
        run, signed = self.keys.run, self.store.signed(item)
        theirs = (
            f"take that of the machine that opened the run: by {FILE_VARIABLE} name a copy of the file `key` "
            f"in the run's folder there, or set {VARIABLE} to what it holds"
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
                f"run {run!r} is not signed, and everybody who reaches its etcd may have written it: nodes "
                f"would run their code. Open it with a key (`cerebro run` makes one; {VARIABLE}), or use an "
                "etcd with login and TLS"
            )

    def spec(self) -> Spec | None:
        """The run's spec, ``None`` if there is none. Raises ``RunError`` if it is not signed with our key."""
        item = self.store.get(self.keys.spec)
        try:
            return decode(item.value, Spec) if item else None
        except UnreadableValue:
            if self._key is not None:
                self.check_signed(trusted=True)
            raise

    def state(self) -> State:
        """The run's state now."""
        return state_of(self.store.range(self.keys.prefix), self.keys)

    def read(self) -> StateRead:
        """The run's state now, with the visits that led to it."""
        snapshot = self.store.range(self.keys.prefix)
        visits = visits_in(i for i in snapshot.items if self.keys.split(i.key)[0] == "visits")
        return StateRead(snapshot.revision, state_of(snapshot, self.keys), tuple(visits))

    def now(self) -> int:
        """The revision of the store, which other runs may share."""
        return self.store.range(self.keys.event).revision

    def revision(self) -> int:
        """The revision of the last transaction; 0 if there was none."""
        item = self.store.get(self.keys.event)
        return item.mod_revision if item else 0

    def ended(self) -> bool:
        """Whether the run has ended."""
        return self.store.get(self.keys.outcome) is not None

    def leader(self) -> str | None:
        """The name of who leads the run."""
        item = self.store.get(self.keys.leader)
        return item.value.decode() if item else None

    def logged(self) -> dict[str, int]:
        """How many visits of each config the loggers have that the leader writes to."""
        prefix = self.keys.logged("")
        return {item.key.removeprefix(prefix): int(item.value) for item in self.store.range(prefix).items}

    def config(self, config: str) -> Config | None:
        item = self.store.get(self.keys.config(config))
        return config_of(item) if item else None

    def node(self, name: str) -> Node | None:
        item = self.store.get(self.keys.node(name))
        return node_of(item) if item else None

    def assignment(self, node: str) -> Attempt | None:
        item = self.store.get(self.keys.assign(node))
        return attempt_of(item) if item else None

    def saving(self, node: str) -> Attempt | None:
        """What the node has trained and saves behind its next unit."""
        item = self.store.get(self.keys.saving(node))
        return saving_of(item) if item else None

    def children(self, config: str) -> dict[str, Parent]:
        """The configs that began with a checkpoint that ``config`` wrote, and with which."""
        prefix = self.keys.children(config)
        items = self.store.range(prefix).items
        return {item.key.removeprefix(prefix): decode(item.value, Parent) for item in items}

    def visits(self) -> list[Visit]:
        """All committed visits, in the order of their commits."""
        return visits_in(self.store.range(self.keys.prefix + "visits/").items)

    def visits_of(self, config: str, epoch: int | None = None) -> list[Visit]:
        """A config's visits, in order; those of one ``epoch``, if it is given."""
        items = self.store.range(self.keys.visits(config, epoch)).items
        return [decode(item.value, Visit) for item in items]

    @contextmanager
    def events(self, start: int) -> Iterator[EventStream]:
        """The history from revision ``start`` on."""
        with self.store.watch(self.keys.prefix, start) as watch:
            yield EventStream(watch, self.keys)

    def history(self) -> list[Event]:
        """All that has happened up to now. Raises ``Compacted`` if the store has forgotten its beginning."""
        opened, last = self.store.get(self.keys.spec), self.revision()
        history: list[Event] = []
        if opened is not None:
            with self.events(opened.create_revision) as stream:
                while not history or history[-1].revision < last:
                    history += stream.next()
        return history

    def _do(self, guard: Sequence[Compare], ops: Sequence[Op], event: Event) -> int | None:
        """The revision of the change, or ``None`` if the guard does not hold."""
        result = self.store.txn(guard, [*ops, Put(self.keys.event, value_of(event))])
        return result.revision if result.succeeded else None


class EventStream:
    """A run's events as they happen."""

    def __init__(self, watch: Watch, keys: Keys) -> None:
        self._watch = watch
        self._keys = keys

    def next(self, timeout: float | None = None) -> list[Event]:
        """The events of the next revision; none after ``timeout`` seconds without one."""
        batch = self._watch.next(timeout)
        return events_of(batch, self._keys) if batch else []
