"""Writes to a run's keys by others than its processes.

Another program, a person with ``etcdctl`` or a test that was pointed at the wrong server can write to the
etcd as well. Two things reveal it:

- a value of another form than the key's (``ForeignValue``);
- a change that no transaction of ours makes. Ours writes its event together with the keys that such an event
  changes; the end of a lease deletes keys without an event; and few kinds of keys are written alone.

A process that follows the run and sees such a change ends with an error that names the key: the record cannot
be believed any more. This is no protection against forged transactions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar, cast

from cerebro_elastic.core.history.keys import KINDS, Keys
from cerebro_elastic.core.history.machine import TABLE
from cerebro_elastic.core.model.codec import UnreadableValue, decode, excerpt
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.store.client.base import Change, ChangeBatch, KeyValue
from cerebro_elastic.system.logs import EventLog

T = TypeVar("T")


class ForeignValue(UnreadableValue):
    """A key of a run holds a value that no process of the run has written."""


def value_in(item: KeyValue, keys: Keys, kind: type[T]) -> T:
    """The value of dataclass ``kind`` that a key of the run holds, with the key's revision. Raises
    ``ForeignValue`` if it holds none, or one of another key."""
    known = KINDS[keys.split(item.key)[0]]
    try:
        value: Any = decode(item.value, kind)
    except UnreadableValue as error:
        raise foreign_value(item, str(error)) from error
    own = known.own(keys, value)
    if own and item.key not in own:
        raise foreign_value(item, f"it is that of {', '.join(map(excerpt, own))}")
    if known.revision:
        value = replace(value, **{known.revision: revision_of(item, keys)})
    return cast(T, value)


def number_in(item: KeyValue) -> int:
    """The number that ``item`` holds. Raises ``ForeignValue``."""
    if not item.value.isdigit() or len(item.value) > _DIGITS:
        raise foreign_value(item, f"{excerpt(item.value)} is no number")
    return int(item.value)


_DIGITS = 18


def revision_of(item: KeyValue, keys: Keys) -> int:
    """The key's revision as states note it (``written_at``)."""
    return item.create_revision if KINDS[keys.split(item.key)[0]].leased else item.mod_revision


def check(item: KeyValue, keys: Keys) -> None:
    """Raise ``ForeignValue`` if the value of ``item`` does not have the form of its kind."""
    kind = keys.split(item.key)[0]
    value = KINDS[kind].value
    if value is not None:
        value_in(item, keys, value)
    elif kind == "logged":
        number_in(item)


def explains(event: Event, batch: ChangeBatch, keys: Keys) -> bool:
    """Whether the ``event`` accounts for all changes of the ``batch``."""
    row = TABLE[type(event)]
    beside = {keys.split(change.key)[0] for change in batch.changes} - {"event"}
    return bool(row.by) and bool(beside) and beside.issuperset(row.keys)


def needs_no_event(change: Change, keys: Keys) -> bool:
    """Whether the run's processes make this change without an event."""
    name, item = keys.split(change.key)[0], change.item
    kind = KINDS.get(name)
    if kind is None:
        return False
    if item is None:
        return kind.leased or name in ("meeting", "logged")
    if not kind.by or (kind.leased and not item.lease):
        return False
    try:
        check(item, keys)
    except ForeignValue:
        return False
    return True


def foreign_value(item: KeyValue, why: str) -> ForeignValue:
    """The error for an ``item`` that the run's processes have not written, for the reason ``why``."""
    return ForeignValue(
        f"etcd's key {excerpt(item.key)}, as written at revision {item.mod_revision}, is not of this run: "
        f"{why}. {WAY_OUT}"
    )


def foreign_change(key: str, item: KeyValue | None) -> ForeignValue:
    """The error for a ``key`` that now holds ``item``, and that others have changed."""
    holds = f"holds {excerpt(item.value)}" if item is not None else "is gone"
    return ForeignValue(
        f"others than this run's processes have changed etcd's key {excerpt(key)}, which now {holds}: the "
        f"run stops, because its values in etcd cannot be trusted. {WAY_OUT}"
    )


WAY_OUT = (
    "Find out which program or person writes there, and end that; then `cerebro etcd RUN --restore` begins "
    "a new etcd from the run's history"
)


def report_once(log: EventLog) -> Callable[[ForeignValue], None]:
    """A function that logs each foreign value once; the run's leader stops the run."""
    reported: set[str] = set()

    def report(error: ForeignValue) -> None:
        if str(error) not in reported:
            reported.add(str(error))
            log.error("not ours", error=str(error))

    return report
