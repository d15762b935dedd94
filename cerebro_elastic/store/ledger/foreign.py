"""What in a run's keys is not ours.

Whoever may write to the etcd may write there, too: another program, a person with ``etcdctl``, a test that
was pointed at the wrong server. Two things give it away:

- a value that is not what such a key holds (``ForeignValue``);
- a change that no transaction of ours makes. Ours writes its event, and beside it the keys that such an event
  is about; what ends with a lease is deleted without one; and few kinds of keys are written alone.

Whoever follows a run leaves the second out of its state, and the leader puts both back
(``controller/mending.py``). This is no protection against those who forge whole transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from cerebro_elastic.core.model.codec import UnreadableValue, decode, excerpt
from cerebro_elastic.core.model.events import (
    ConfigCreated,
    ConfigEnded,
    ConfigResumed,
    Event,
    HomesAssigned,
    LeaderChanged,
    NodeDraining,
    NodeJoined,
    NodeQuarantined,
    NodeReady,
    NodeRecovered,
    NodeStalled,
    Ordered,
    ProfileDone,
    RecordMended,
    RunEnded,
    RunOpened,
    UnitAssigned,
    UnitCommitted,
    UnitFailed,
    UnitTrained,
    UnitWithdrawn,
)
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.logs import EventLog
from cerebro_elastic.store.client.base import Change, ChangeBatch, KeyValue
from cerebro_elastic.store.ledger.keys import Keys

T = TypeVar("T")

UNDER_LEASE = frozenset({"nodes", "quarantined", "leader", "hosts", "opening"})
"""Kinds of keys that are always under a lease: without one they are nobody's."""

_BESIDE: Mapping[type[Event], frozenset[str]] = {
    RunOpened: frozenset({"spec"}),
    LeaderChanged: frozenset({"leader"}),
    ConfigCreated: frozenset({"configs"}),
    ConfigEnded: frozenset({"configs"}),
    ConfigResumed: frozenset({"configs"}),
    NodeJoined: frozenset({"nodes"}),
    NodeReady: frozenset({"nodes"}),
    NodeDraining: frozenset({"nodes"}),
    NodeStalled: frozenset({"nodes"}),
    NodeRecovered: frozenset({"nodes"}),
    NodeQuarantined: frozenset({"quarantined", "quarantined_for"}),
    HomesAssigned: frozenset({"homes"}),
    Ordered: frozenset({"order"}),
    UnitAssigned: frozenset({"assign"}),
    UnitTrained: frozenset({"assign", "saving"}),
    UnitCommitted: frozenset({"visits", "configs"}),
    UnitFailed: frozenset({"configs"}),
    UnitWithdrawn: frozenset(),
    ProfileDone: frozenset({"profiles"}),
    RunEnded: frozenset({"outcome"}),
    RecordMended: frozenset({"mended"}),
}
"""Events that are written, and the kinds of keys that change with each."""


class ForeignValue(UnreadableValue):
    """A key of a run holds what no process of the run has written."""


def value_in(item: KeyValue, kind: type[T], name: Callable[[T], str] | None = None) -> T:
    """The value of dataclass ``kind`` that ``item`` holds, for whom its key ends with what ``name`` says.
    Raises ``ForeignValue``."""
    try:
        value = decode(item.value, kind)
    except UnreadableValue as error:
        raise foreign(item, str(error)) from error
    if name is not None and not item.key.endswith(f"/{name(value)}"):
        raise foreign(item, f"it is that of {excerpt(name(value))}")
    return value


def spec_in(item: KeyValue, keys: Keys) -> Spec:
    """The run's spec. Raises ``ForeignValue``, also if it is another run's."""
    spec = value_in(item, Spec)
    if spec.plan.run != keys.run:
        raise foreign(item, f"it is that of the run {excerpt(spec.plan.run)}")
    return spec


def number_in(item: KeyValue) -> int:
    """The number that ``item`` holds. Raises ``ForeignValue``."""
    if not item.value.isdigit() or len(item.value) > _DIGITS:
        raise foreign(item, f"{excerpt(item.value)} is no number")
    return int(item.value)


_DIGITS = 18


def is_ours(event: Event, batch: ChangeBatch, keys: Keys) -> bool:
    """Whether the ``event`` may be that of all the ``batch``."""
    beside = {keys.split(change.key)[0] for change in batch.changes} - {"event"}
    expected = _BESIDE.get(type(event))
    return expected is not None and bool(beside) and expected <= beside


def is_alone(change: Change, keys: Keys) -> bool:
    """Whether this is a change that no event goes with."""
    kind, _ = keys.split(change.key)
    item = change.item
    if kind in UNDER_LEASE:
        return item is None or (kind in ("hosts", "opening") and item.lease != 0)
    try:
        match kind:
            case "meeting":
                return True
            case "logged":
                return item is None or number_in(item) >= 0
            case "spec":
                return item is not None and bool(spec_in(item, keys))
    except ForeignValue:
        pass
    return False


def foreign(item: KeyValue, why: str) -> ForeignValue:
    """The error that ``item`` is not ours, which ``why`` says."""
    return ForeignValue(
        f"etcd's key {excerpt(item.key)}, as written at revision {item.mod_revision}, is not of this run: "
        f"{why}. Another program wrote it, or a person: keep others from writing under the run's prefix. "
        "Whoever leads the run puts the key back"
    )


def told_once(log: EventLog) -> Callable[[ForeignValue], None]:
    """Logs what is not ours, each once: whoever leads puts it right."""
    told: set[str] = set()

    def tell(error: ForeignValue) -> None:
        if str(error) not in told:
            told.add(str(error))
            log.error("not ours", error=str(error))

    return tell
