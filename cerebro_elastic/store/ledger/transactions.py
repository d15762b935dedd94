"""Changes a run's record by guarded transactions, each of which is one event.

``write`` makes one from an event's row (``core/history/machine.py``): it writes the keys that the event
changes, as the state after the event has them, provided that they are as in the state before. The writer
needs only the part of that state that the row looks at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from types import MappingProxyType
from typing import Any, TypeVar, cast

from cerebro_elastic.core.history.keys import KINDS, Kind, written_at
from cerebro_elastic.core.history.machine import TABLE
from cerebro_elastic.core.history.rows import Writer
from cerebro_elastic.core.model.codec import encode
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.state import State
from cerebro_elastic.store.client.base import Compare, Delete, Op, Put, absent, at_revision, created_at
from cerebro_elastic.store.ledger.record import Record

T = TypeVar("T")
LONGEST = 16_000
"""The most letters of an explanation in the record."""
_BEGINNING, _END = 12_000, 3_800
"""The part that is kept of a longer one. The lines of the user's files are at its end."""
_EXPLAINING = {"story", "reason", "why", "refusal", "place"}
"""The fields of events, and of their parts, that explain something to people."""


def write(
    record: Record,
    by: Writer,
    before: State,
    event: Event,
    guard: Sequence[Compare],
    *,
    compares: Iterable[str] = (),
    values: Mapping[str, object] = MappingProxyType({}),
    lease: int = 0,
) -> int | None:
    """Let the ``event`` happen, if nothing has changed that it depends on.

    Args:
        before: The state as the writer has read it, as far as the event's row looks at it.
        guard: The writer's fence, and further conditions.
        compares: Kinds of keys that must be as in ``before``, besides those of the event's row.
        values: By key: values that are not in states.
        lease: The lease of leased keys.

    Returns:
        The revision of the change, or ``None`` if the guard does not hold and nothing has changed.

    Raises:
        IllegalEvent: The event is not possible in the state ``before``.
        TxnUnknown: The answer was lost; the change may have happened, or happen yet.
    """
    event = bounded(event)
    keys, row = record.keys, TABLE[type(event)]
    assert by in row.by, f"{event} is not written by {by}"
    after = row.after(before, event)
    compared = {
        key: (kind, name)
        for kind in (*row.compares, *compares)
        for key, name in keys.concerned(kind, before, event).items()
    }
    ops: list[Op] = []
    for kind in (*row.keys, *row.also):
        known = KINDS[kind]
        for key, name in keys.concerned(kind, before, event).items():
            was, value = known.held(before, name), _value(known, after, event, name)
            value = values.get(key, value)
            if value is not was:
                if known.guarded:
                    compared[key] = kind, name
                ops.append(Delete(key) if value is None else put(kind, key, value, lease))
    unchanged = (_unchanged(before, key, *of) for key, of in compared.items())
    return transact(record, [*guard, *filter(None, unchanged)], ops, event)


def transact(record: Record, guard: Sequence[Compare], ops: Sequence[Op], event: Event) -> int | None:
    """Write ``event`` and do ``ops`` if the ``guard`` holds; answers as ``write``."""
    result = record.store.txn(guard, [*ops, Put(record.keys.event, value_of(event))])
    return result.revision if result.succeeded else None


def put(kind: str, key: str, value: Any, lease: int = 0) -> Put:
    """The operation that writes a value of the core, without the key's revision."""
    known = KINDS[kind]
    if known.revision and getattr(value, known.revision):
        value = replace(value, **{known.revision: 0})
    return Put(key, value_of(value), lease if known.leased else 0)


def bounded(value: T) -> T:
    """An event, or a part of one, without the middle of explanations that are too long: a store takes 1.5 MB
    in one transaction, and libraries print arrays and whole requests into exceptions. The log has all."""
    changed: dict[str, Any] = {}
    for field in fields(cast(Any, value)):
        part = getattr(value, field.name)
        if field.name in _EXPLAINING and isinstance(part, str) and len(part) > LONGEST:
            left_out = len(part) - _BEGINNING - _END
            cut = f" ... ({left_out} letters are left out here: the node's log has them) ... "
            changed[field.name] = part[:_BEGINNING] + cut + part[-_END:]
        elif is_dataclass(part):
            changed[field.name] = bounded(part)
        elif isinstance(part, tuple) and any(map(is_dataclass, part)):
            changed[field.name] = tuple(map(bounded, part))
    return replace(cast(Any, value), **changed) if changed else value


def value_of(value: object) -> bytes:
    """The bytes that the store holds for a value of the core."""
    return encode(value).encode()


def _value(kind: Kind, after: State, event: Event, name: str) -> object:
    """A key's value after the event; ``None``: the key is deleted."""
    if kind.reported is not None:
        return kind.reported(event, name)
    return event if kind.value and isinstance(event, kind.value) else kind.held(after, name)


def _unchanged(before: State, key: str, kind: str, name: str) -> Compare | None:
    """The condition that the key is as in the state ``before``, if that has it."""
    revision = written_at(before, kind, name)
    if not revision:
        return None if revision is None else absent(key)
    return created_at(key, revision) if KINDS[kind].leased else at_revision(key, revision)
