"""Parts of transactions: what guards them, and what they do, for the verbs of more than one hand."""

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

Change: TypeAlias = tuple[Sequence[Compare], Sequence[Op], Event]
"""A transaction: its guard, what it does, the event that it is."""


def created(keys: Keys, config: Config, parent: int) -> Change:
    """A new config; one with a parent in the run, as long as that is at revision ``parent``."""
    key, edge = keys.config(config.id), config.parent
    guard: list[Compare] = [absent(key)]
    ops: list[Op] = [Put(key, value_of(config))]
    if edge is not None and edge.config:
        guard.append(at_revision(keys.config(edge.config), parent))
        ops.append(Put(keys.children(edge.owner) + config.id, value_of(edge)))
    return guard, ops, ConfigCreated(0, config)


def config_changed(keys: Keys, config: Config, event: ConfigEnded | ConfigResumed) -> Change:
    """``config`` as it is after ``event``, if it is as we have it."""
    key = keys.config(config.id)
    after = replace(with_status(config, event), revision=0)
    return [at_revision(key, config.revision)], [Put(key, value_of(after))], event


def as_begun(keys: Keys, attempt: Attempt) -> list[Compare]:
    """All its nodes are registered as it says, and its config is where it begins."""
    registered = [created_at(keys.node(m.node), m.registration) for m in attempt.members]
    return [*registered, at_revision(keys.config(attempt.unit.config), attempt.config_revision)]


def held(keys: Keys, attempt: Attempt) -> list[Compare]:
    """Its nodes train it or, once it is trained, its node saves it."""
    return [at_revision(key, attempt.trained or attempt.token) for key in _keys_of(keys, attempt)]


def cleared(keys: Keys, attempt: Attempt) -> list[Op]:
    return [Delete(key) for key in _keys_of(keys, attempt)]


def _keys_of(keys: Keys, attempt: Attempt) -> list[str]:
    if attempt.trained:
        return [keys.saving(attempt.node)]
    return [keys.assign(name) for name in attempt.nodes]


def value_of(thing: object) -> bytes:
    """As it stands in the store."""
    return encode(thing).encode()
