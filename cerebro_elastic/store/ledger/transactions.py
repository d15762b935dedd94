"""How a run's record is changed: by guarded transactions, each of which is one event.

``transact`` is the only way in. The other functions are the guards and operations that several ledgers share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from cerebro_elastic.core.history.lineage import with_status
from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.codec import encode
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.events import ConfigCreated, ConfigEnded, ConfigResumed, Event
from cerebro_elastic.store.client.base import Compare, Delete, Op, Put, absent, at_revision, created_at
from cerebro_elastic.store.ledger.keys import Keys
from cerebro_elastic.store.ledger.record import Record

Transaction: TypeAlias = tuple[Sequence[Compare], Sequence[Op], Event]
"""The guard, the operations, and the event that they are."""


def transact(record: Record, guard: Sequence[Compare], ops: Sequence[Op], event: Event) -> int | None:
    """Write ``event`` and do ``ops`` if the ``guard`` holds.

    Returns:
        The revision of the change, or ``None`` if the guard does not hold and nothing has changed.

    Raises:
        TxnUnknown: The answer was lost; the change may have happened, or happen yet.
    """
    result = record.store.txn(guard, [*ops, Put(record.keys.event, value_of(event))])
    return result.revision if result.succeeded else None


def config_creation(keys: Keys, config: Config, parent: int) -> Transaction:
    """Create ``config``.

    Guard: no config has its id; and its parent, if that is a config of the run, is at revision ``parent``.
    Effect: the config, and its edge under the parent's children.
    """
    key, edge = keys.config(config.id), config.parent
    guard: list[Compare] = [absent(key)]
    ops: list[Op] = [Put(key, value_of(config))]
    if edge is not None and edge.config:
        guard.append(at_revision(keys.config(edge.config), parent))
        ops.append(Put(keys.children(edge.owner) + config.id, value_of(edge)))
    return guard, ops, ConfigCreated(0, config)


def config_change(keys: Keys, config: Config, event: ConfigEnded | ConfigResumed) -> Transaction:
    """End or resume ``config``. Guard: it is at the revision that the caller has read."""
    key = keys.config(config.id)
    after = replace(with_status(config, event), revision=0)
    return [at_revision(key, config.revision)], [Put(key, value_of(after))], event


def as_assigned(keys: Keys, attempt: Attempt) -> list[Compare]:
    """Guard: the attempt's nodes have the registrations, and its config the revision, that it was assigned
    with."""
    registrations = [created_at(keys.node(m.node), m.registration) for m in attempt.members]
    return [*registrations, at_revision(keys.config(attempt.unit.config), attempt.config_revision)]


def current(keys: Keys, attempt: Attempt) -> list[Compare]:
    """Guard: the attempt is assigned to its nodes or, once it is trained, its lead node is saving it."""
    return [at_revision(key, attempt.trained or attempt.token) for key in keys_of(keys, attempt)]


def clearing(keys: Keys, attempt: Attempt) -> list[Op]:
    """Operations: delete the attempt's assignment or, once it is trained, the note that it is being saved."""
    return [Delete(key) for key in keys_of(keys, attempt)]


def keys_of(keys: Keys, attempt: Attempt) -> list[str]:
    """The keys that hold the attempt."""
    if attempt.trained:
        return [keys.saving(attempt.node)]
    return [keys.assign(name, second=attempt.second) for name in attempt.nodes]


def value_of(value: object) -> bytes:
    """The bytes that the store holds for a value of the core."""
    return encode(value).encode()
