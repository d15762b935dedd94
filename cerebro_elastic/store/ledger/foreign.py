"""What others than the run's processes have written to its keys.

Another program, a person with ``etcdctl`` or a test that was pointed at the wrong server can write to the
etcd as well. Two things reveal it:

- a value that is not what such a key holds (``ForeignValue``);
- a change that no transaction of ours makes. Ours writes its event together with the keys that such an event
  changes; the end of a lease deletes keys without an event; and few kinds of keys are written alone.

Processes that follow a run leave such changes out of its state, and the leader puts the keys back
(``controller/mending.py``). This is no protection against forged transactions.
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
    RunExtended,
    RunOpened,
    UnitAssigned,
    UnitCommitted,
    UnitFailed,
    UnitTrained,
    UnitWithdrawn,
)
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.store.client.base import Change, ChangeBatch, KeyValue
from cerebro_elastic.store.ledger.keys import Keys
from cerebro_elastic.system.logs import EventLog

T = TypeVar("T")

LEASED_KINDS = frozenset({"nodes", "quarantined", "leader", "hosts", "opening"})
"""Kinds of keys that are always under a lease; without one they are foreign."""

_KINDS_OF_EVENT: Mapping[type[Event], frozenset[str]] = {
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
    RunExtended: frozenset({"spec", "outcome", "extended"}),
    RecordMended: frozenset({"mended"}),
}
"""The kinds of keys that change with each event."""


class ForeignValue(UnreadableValue):
    """A key of a run holds what no process of the run has written."""


def value_in(item: KeyValue, kind: type[T], name: Callable[[T], str] | None = None) -> T:
    """The value of dataclass ``kind`` that ``item`` holds. Raises ``ForeignValue`` if it holds none, or one
    whose ``name`` is not the end of its key."""
    try:
        value = decode(item.value, kind)
    except UnreadableValue as error:
        raise foreign_value(item, str(error)) from error
    if name is not None and not item.key.endswith(f"/{name(value)}"):
        raise foreign_value(item, f"it is that of {excerpt(name(value))}")
    return value


def spec_in(item: KeyValue, keys: Keys) -> Spec:
    """The run's spec. Raises ``ForeignValue``, also if it is another run's."""
    spec = value_in(item, Spec)
    if spec.plan.run != keys.run:
        raise foreign_value(item, f"it is that of the run {excerpt(spec.plan.run)}")
    return spec


def number_in(item: KeyValue) -> int:
    """The number that ``item`` holds. Raises ``ForeignValue``."""
    if not item.value.isdigit() or len(item.value) > _DIGITS:
        raise foreign_value(item, f"{excerpt(item.value)} is no number")
    return int(item.value)


_DIGITS = 18


def explains(event: Event, batch: ChangeBatch, keys: Keys) -> bool:
    """Whether the ``event`` accounts for all changes of the ``batch``."""
    beside = {keys.split(change.key)[0] for change in batch.changes} - {"event"}
    expected = _KINDS_OF_EVENT.get(type(event))
    return expected is not None and bool(beside) and expected <= beside


def needs_no_event(change: Change, keys: Keys) -> bool:
    """Whether the run's processes make this change without an event."""
    kind, _ = keys.split(change.key)
    item = change.item
    if kind in LEASED_KINDS:
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


def foreign_value(item: KeyValue, why: str) -> ForeignValue:
    """The error for an ``item`` that the run's processes have not written, for the reason ``why``."""
    return ForeignValue(
        f"etcd's key {excerpt(item.key)}, as written at revision {item.mod_revision}, is not of this run: "
        f"{why}. Another program wrote it, or a person: keep others from writing under the run's prefix. "
        "Whoever leads the run puts the key back"
    )


def report_once(log: EventLog) -> Callable[[ForeignValue], None]:
    """A function that logs each foreign value once; the leader puts it right."""
    reported: set[str] = set()

    def report(error: ForeignValue) -> None:
        if str(error) not in reported:
            reported.add(str(error))
            log.error("not ours", error=str(error))

    return report
