"""How does the leader restore what other programs have changed in the run's record?

The state says what a key should hold: it is the fold of the run's events, without what others wrote. Visits
and profiles come from the events themselves. Each repair is one transaction, fenced by the leadership and by
the revision of the replaced value. It is also one event (``RecordMended``), because a repair changes the
revision of configs and ends attempts whose token was overwritten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from cerebro_elastic.core.history.keys import KINDS, Keys, written_at
from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.codec import excerpt
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.state import State
from cerebro_elastic.errors import RunError
from cerebro_elastic.store.client.base import Delete, KeyValue, Op, Put
from cerebro_elastic.store.ledger.foreign import ForeignValue, check, revision_of
from cerebro_elastic.store.ledger.leader import LeaderLedger
from cerebro_elastic.store.ledger.restoring import reported
from cerebro_elastic.store.ledger.transactions import put

_OFTEN = 20
"""A key that others change this often is not put back again."""
_AT_ONCE = 32
"""The number of keys that one transaction puts back."""


class Mending:
    """The repairs of one leader, which reports them by ``say``. ``history`` gives the run's events from the
    beginning on, or from the state that was read then; ``spec`` is the run's as it stood in the store."""

    def __init__(
        self,
        ledger: LeaderLedger,
        history: Callable[[], Iterable[Event]],
        say: Callable[[str], None],
        spec: bytes | None,
    ) -> None:
        self._ledger = ledger
        self._record = ledger.record
        self._history = history
        self._say = say
        self._times: Counter[str] = Counter()
        self._spec = spec

    def mend(self, state: State, foreign: Iterable[str]) -> int | None:
        """Put back the keys that are ``foreign``; the revision of the last repair. Raises ``RunError`` if
        others change one again and again, or if it is not known what it held."""
        last, rest = None, sorted(foreign)
        while rest:
            batch, rest = rest[:_AT_ONCE], rest[_AT_ONCE:]
            ops = {op.key: op for key in batch for op in self._right(state, key)}
            items = {key: self._record.store.get(key) for key in ops}
            for key in batch:
                self._tell(key, items[key])
            last = self._ledger.mend(list(ops.values()), items, _lost(state, self._keys, ops)) or last
        return last

    def damage(self, state: State, until: int) -> set[str] | None:
        """The keys that do not hold what they should, as ``state`` says, which knows of all up to the
        revision ``until``; ``None`` if the run has gone on since."""
        keys = self._keys
        items = {item.key: item for item in self._record.store.range(keys.prefix).items}
        if keys.event in items and items[keys.event].mod_revision > until:
            return None
        wanted = [keys.spec, *map(keys.config, state.configs)]
        wanted += [key for attempt in state.underway() for key in keys.of_attempt(attempt)]
        wanted += [keys.prefix + kind for kind in ("homes", "extended") if KINDS[kind].held(state, "")]
        absent = {key for key in wanted if key not in items}
        wrong = (
            item.key for item in items.values() if keys.is_known(item.key) and self._is_wrong(state, item)
        )
        return absent.union(wrong)

    @property
    def _keys(self) -> Keys:
        return self._record.keys

    def _is_wrong(self, state: State, item: KeyValue) -> bool:
        keys = self._keys
        name, rest = keys.split(item.key)
        kind = KINDS[name]
        if kind.leased and not item.lease:
            return True
        has_revision = kind.revision or item.key == keys.control
        if has_revision and written_at(state, name, rest) != revision_of(item, keys):
            return True
        try:
            check(item, keys)
        except ForeignValue:
            return True
        return False

    def _right(self, state: State, key: str) -> Sequence[Op]:
        """What puts ``key`` right, and those that belong to it. A lease, and the token of an attempt, cannot
        be put back."""
        kind, name = self._keys.split(key)
        if key == self._keys.spec:
            return [self._right_spec()]
        if key == self._keys.control:
            return [Put(key, b"{}") if state.asked else Delete(key)]
        value = None if KINDS[kind].leased else KINDS[kind].held(state, name)
        if isinstance(value, Attempt):
            return [Delete(each) for each in self._keys.of_attempt(value)]
        if KINDS[kind].reported is not None:
            value = reported(self._history(), self._keys).get(key)
        return [Delete(key) if value is None else put(kind, key, value)]

    def _right_spec(self) -> Op:
        if self._spec is None:
            raise RunError(
                f"others have written to etcd's key {self._keys.spec}, and it is not known here what it "
                "held: start the run again where it was started first"
            )
        return Put(self._keys.spec, self._spec)

    def _tell(self, key: str, item: KeyValue | None) -> None:
        self._times[key] += 1
        holds = f"holds {excerpt(item.value)}" if item is not None else "is gone"
        change = f"others than this run's processes have changed etcd's key {excerpt(key)}, which now {holds}"
        if self._times[key] > _OFTEN:
            raise RunError(
                f"{change}; it was put back {_OFTEN} times: find out who writes there, a program or a "
                "person, and end that; then the same command goes on"
            )
        self._say(f"{change}: putting back what the history says")


def _lost(state: State, keys: Keys, ops: Mapping[str, Op]) -> list[int]:
    """The tokens of the attempts whose keys are among those that are put right."""
    return [each.token for each in state.underway() if not ops.keys().isdisjoint(keys.of_attempt(each))]
