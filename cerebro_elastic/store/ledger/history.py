"""Reading a run's history: each revision of the store under the run's prefix is one event, and a snapshot of
the keys is the state after all events up to it.

Every transaction writes its event to one key, ``event``, together with the keys that it changes; the watch on
that key is the history. Only the end of a lease deletes keys without an event. Writes of others than the
run's processes are no part of it (``foreign``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from cerebro_elastic.core.history.derived import derive
from cerebro_elastic.core.history.keys import Keys
from cerebro_elastic.core.model.attempts import Attempt, ProfileResult, Visit
from cerebro_elastic.core.model.codec import UnreadableValue, decode, excerpt, kind_of
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.events import (
    KINDS,
    Event,
    HomesAssigned,
    LeaderChanged,
    NodeJoined,
    NodeLeft,
    NodeQuarantined,
    NodeReleased,
    Ordered,
    RunEnded,
    RunExtended,
)
from cerebro_elastic.core.model.nodes import Node, Stay
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Measurement
from cerebro_elastic.store.client.base import Change, ChangeBatch, KeyValue, Snapshot
from cerebro_elastic.store.ledger.foreign import (
    WAY_OUT,
    ForeignValue,
    explains,
    needs_no_event,
    value_in,
)
from cerebro_elastic.system.words import counted

T = TypeVar("T")


def decode_event(text: str | bytes, revision: int = 0) -> Event:
    """The event that ``text`` holds, at ``revision`` (0: at the revision that it says itself)."""
    kind = KINDS.get(kind_of(text))
    if kind is None:
        raise UnreadableValue(f"{excerpt(text)} is no event; kinds: {', '.join(sorted(KINDS))}")
    event = decode(text, kind)
    event = replace(event, revision=revision) if revision else event
    if isinstance(event, NodeJoined):
        return replace(event, node=replace(event.node, registration=event.revision))
    return event


def events_of(batch: ChangeBatch, keys: Keys) -> tuple[list[Event], list[Change]]:
    """The events of one revision: the one that was written, or the ends of leases; and the changes in it
    that others have made."""
    written = next((change.item for change in batch.changes if change.key == keys.event), None)
    if written is not None:
        with suppress(UnreadableValue):
            event = decode_event(written.value, batch.revision)
            if explains(event, batch, keys):
                return [event], []
    foreign = [change for change in batch.changes if written is not None or not needs_no_event(change, keys)]
    return _ends_of_leases(batch, keys), foreign


_ENDS: Mapping[str, Callable[[int, str], Event]] = {
    "nodes": NodeLeft,
    "quarantined": NodeReleased,
    "leader": lambda revision, _: LeaderChanged(revision, None),
}
"""By kind of keys: the event that the end of a lease is."""


def _ends_of_leases(batch: ChangeBatch, keys: Keys) -> list[Event]:
    gone = [keys.split(change.key) for change in batch.changes if change.item is None]
    return [_ENDS[kind](batch.revision, name) for kind, name in gone if kind in _ENDS]


def state_of(snapshot: Snapshot, keys: Keys) -> State:
    """The state that a controller takes over: equal to the fold of all events so far."""
    kinds: dict[str, list[KeyValue]] = {}
    for item in filter(lambda item: keys.is_known(item.key), snapshot.items):
        kinds.setdefault(keys.split(item.key)[0], []).append(item)

    def values(name: str, kind: type[T]) -> list[T]:
        return [value_in(item, keys, kind) for item in kinds.get(name, ())]

    def only(name: str, kind: type[T]) -> T | None:
        return next(iter(values(name, kind)), None)

    spec, homes, order = only("spec", Spec), only("homes", HomesAssigned), only("order", Ordered)
    outcome = only("outcome", RunEnded)
    extension = next((extension_in(item, keys) for item in kinds.get("extended", ())), None)
    attempts, queued = _assigned(kinds.get("assign", ()), keys)
    saving = {attempt.node: attempt for attempt in values("saving", Attempt)}
    configs = {config.id: config for config in values("configs", Config)}
    visits = visits_in(kinds.get("visits", ()), keys)
    underway = [*attempts.values(), *queued.values(), *saving.values()]
    _check_whole(keys, spec is not None, configs, [*visits, *underway])
    state = State(
        plan=spec.plan if spec else None,
        configs=configs,
        nodes={node.name: node for node in sorted(values("nodes", Node), key=lambda node: node.registration)},
        homes=dict(homes.homes) if homes else {},
        order=order.order if order else (),
        attempts=attempts,
        saving=saving,
        queued=queued,
        quarantined={event.node: event.why for event in values("quarantined", NodeQuarantined)},
        quarantined_for={event.node: event.failure for event in values("quarantined_for", NodeQuarantined)},
        asked=next((item.mod_revision for item in kinds.get("control", ()) if item.key == keys.control), 0),
        leader=next((leader_in(item) for item in kinds.get("leader", ()) if item.lease), None),
        outcome=outcome.outcome if outcome else None,
        extension=extension.extension if extension else None,
        extended=extension.revision if extension else 0,
        stays={stay.name: stay for stay in values("stays", Stay)},
        measured=tuple(sorted(values("measured", Measurement), key=lambda found: found.number)),
        revision=snapshot.revision,
    )
    return derive(state, visits, values("profiles", ProfileResult))


def _assigned(items: Iterable[KeyValue], keys: Keys) -> tuple[dict[str, Attempt], dict[str, Attempt]]:
    """By node: the attempt in training, and the younger one that is queued behind it."""
    training: dict[str, Attempt] = {}
    queued: dict[str, Attempt] = {}
    for item in sorted(items, key=lambda item: item.mod_revision):
        attempt = value_in(item, keys, Attempt)
        (name,) = (
            name for name, key in zip(attempt.nodes, keys.of_attempt(attempt), strict=True) if key == item.key
        )
        (queued if name in training else training)[name] = attempt
    return training, queued


def _check_whole(keys: Keys, opened: bool, configs: Collection[str], of: Iterable[Visit | Attempt]) -> None:
    """Raise ``ForeignValue`` if keys are gone that the others imply."""
    gone = [keys.config(name) for name in sorted({each.unit.config for each in of}.difference(configs))]
    gone += [keys.spec] if configs and not opened else []
    if gone:
        raise ForeignValue(
            f"etcd's {counted(len(gone), 'key')} {', '.join(map(excerpt, gone[:3]))} must be there and are "
            f"not: another program took them away, or a person. {WAY_OUT}"
        )


def extension_in(item: KeyValue, keys: Keys) -> RunExtended:
    """The last extension. A value that was put back has the revision at which it was first written."""
    event = value_in(item, keys, RunExtended)
    return event if event.revision else replace(event, revision=item.mod_revision)


def leader_in(item: KeyValue) -> str:
    """The leader's name."""
    return item.value.decode(errors="replace")


def visits_in(items: Iterable[KeyValue], keys: Keys) -> list[Visit]:
    """The visits that ``items`` hold, in the order of their commits. The value of a visit that was put back
    has the revision of its commit."""
    visits = [(value_in(item, keys, Visit), item.mod_revision) for item in items]
    visits.sort(key=lambda each: each[0].revision or each[1])
    return [replace(visit, revision=0) if visit.revision else visit for visit, _ in visits]
