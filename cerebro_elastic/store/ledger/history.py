"""Reading a run's history: each revision of the store under the run's prefix is one event, and a snapshot of
the keys is the state after all events up to it.

Every transaction writes its event to one key, ``event``, together with the keys that it changes; the watch on
that key is the history. Only the end of a lease deletes keys without an event. What others than the run's
processes have written is no part of it (``foreign``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from cerebro_elastic.core.history.derived import derive
from cerebro_elastic.core.model.attempts import Attempt, ProfileResult, Visit
from cerebro_elastic.core.model.codec import UnreadableValue, decode, excerpt, kind_of
from cerebro_elastic.core.model.configs import Config, Parent
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
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.state import State
from cerebro_elastic.store.client.base import ChangeBatch, KeyValue, Snapshot
from cerebro_elastic.store.ledger.foreign import (
    ForeignValue,
    explains,
    foreign_value,
    needs_no_event,
    number_in,
    spec_in,
    value_in,
)
from cerebro_elastic.store.ledger.keys import Keys, node_of_assignment
from cerebro_elastic.system.words import counted


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


def events_of(batch: ChangeBatch, keys: Keys) -> tuple[list[Event], list[str]]:
    """The events of one revision: the one that was written, or the ends of leases; and the keys in it that
    others have changed."""
    written = next((change.item for change in batch.changes if change.key == keys.event), None)
    if written is not None:
        with suppress(UnreadableValue):
            event = decode_event(written.value, batch.revision)
            if explains(event, batch, keys):
                return [event], []
    foreign_keys = [
        change.key for change in batch.changes if written is not None or not needs_no_event(change, keys)
    ]
    return _ends_of_leases(batch, keys), foreign_keys


def _ends_of_leases(batch: ChangeBatch, keys: Keys) -> list[Event]:
    events: list[Event] = []
    for change in batch.changes:
        kind, rest = keys.split(change.key)
        if kind == "nodes" and change.item is None:
            events.append(NodeLeft(batch.revision, rest))
        if kind == "quarantined" and change.item is None:
            events.append(NodeReleased(batch.revision, rest))
        if kind == "leader" and change.item is None:
            events.append(LeaderChanged(batch.revision, None))
    return events


def state_of(snapshot: Snapshot, keys: Keys) -> State:
    """The state that a controller takes over: equal to the fold of all events so far."""
    kinds: dict[str, dict[str, KeyValue]] = {}
    for item in snapshot.items:
        kind, rest = keys.split(item.key)
        kinds.setdefault(kind, {})[rest] = item
    named = ("spec", "homes", "order", "outcome", "leader", "extended")
    spec, homes, order, outcome, leader, extended = (kinds.get(kind, {}).get("") for kind in named)
    nodes = [node_of(item) for item in kinds.get("nodes", {}).values()]
    attempts, queued = _assigned(kinds.get("assign", {}))
    saving = {name: saving_of(item) for name, item in kinds.get("saving", {}).items()}
    configs = {c.id: c for c in map(config_of, kinds.get("configs", {}).values())}
    visits = visits_in(kinds.get("visits", {}).values())
    underway = [*attempts.values(), *queued.values(), *saving.values()]
    _check_whole(keys, spec is not None, configs, [*visits, *underway])
    quarantined, quarantined_for = (
        [_set_aside(item) for item in kinds.get(k, {}).values()] for k in ("quarantined", "quarantined_for")
    )
    profiles = [value_in(item, ProfileResult) for item in kinds.get("profiles", {}).values()]
    asked = kinds.get("control", {}).get("last")
    extension = extension_of(extended) if extended else None
    state = State(
        plan=spec_in(spec, keys).plan if spec else None,
        configs=configs,
        nodes={node.name: node for node in sorted(nodes, key=lambda node: node.registration)},
        homes=dict(value_in(homes, HomesAssigned).homes) if homes else {},
        order=value_in(order, Ordered).order if order else (),
        attempts=attempts,
        saving=saving,
        queued=queued,
        quarantined={event.node: event.why for event in quarantined},
        quarantined_for={event.node: event.failure for event in quarantined_for},
        asked=asked.mod_revision if asked else 0,
        leader=leader_in(leader) if leader and leader.lease else None,
        outcome=outcome_of(outcome) if outcome else None,
        extension=extension.extension if extension else None,
        extended=extension.revision if extension else 0,
        revision=snapshot.revision,
    )
    return derive(state, visits, profiles)


def _assigned(items: Mapping[str, KeyValue]) -> tuple[dict[str, Attempt], dict[str, Attempt]]:
    """By node: the attempt in training, and the younger one that is queued behind it."""
    training: dict[str, Attempt] = {}
    queued: dict[str, Attempt] = {}
    for rest, item in sorted(items.items(), key=lambda each: each[1].mod_revision):
        name, _ = node_of_assignment(rest)
        (queued if name in training else training)[name] = attempt_of(item)
    return training, queued


def _check_whole(keys: Keys, opened: bool, configs: Collection[str], of: Iterable[Visit | Attempt]) -> None:
    """Raise ``ForeignValue`` if keys are gone without which there could not be the others."""
    gone = [keys.config(name) for name in sorted({each.unit.config for each in of}.difference(configs))]
    gone += [keys.spec] if configs and not opened else []
    if gone:
        raise ForeignValue(
            f"etcd's {counted(len(gone), 'key')} {', '.join(map(excerpt, gone[:3]))} must be there and are "
            "not: another program took them away, or a person. Whoever leads the run puts them back"
        )


def node_of(item: KeyValue) -> Node:
    """A node as registered at the revision that created its key."""
    return replace(value_in(item, Node, lambda node: node.name), registration=item.create_revision)


def config_of(item: KeyValue) -> Config:
    """A config at the revision that last wrote it."""
    return replace(value_in(item, Config, lambda config: config.id), revision=item.mod_revision)


def attempt_of(item: KeyValue) -> Attempt:
    """An attempt, its token the revision that assigned it."""
    attempt = value_in(item, Attempt)
    name, second = node_of_assignment(item.key.rpartition("/assign/")[2])
    if name not in attempt.nodes or second != attempt.second:
        raise foreign_value(item, f"it is an assignment of {', '.join(map(excerpt, attempt.nodes))}")
    return replace(attempt, token=item.mod_revision)


def saving_of(item: KeyValue) -> Attempt:
    """An attempt that is trained, since the revision that wrote it here."""
    return replace(value_in(item, Attempt, lambda attempt: attempt.node), trained=item.mod_revision)


def outcome_of(item: KeyValue) -> str:
    """How the run has ended."""
    return value_in(item, RunEnded).outcome


def extension_of(item: KeyValue) -> RunExtended:
    """The last extension. The value of one that was put back has the revision at which it was written
    first."""
    event = value_in(item, RunExtended)
    return event if event.revision else replace(event, revision=item.mod_revision)


def leader_in(item: KeyValue) -> str:
    """The leader's name."""
    return item.value.decode(errors="replace")


def check(item: KeyValue, keys: Keys) -> None:
    """Raise ``ForeignValue`` if ``item`` does not hold what a key of its kind does."""
    match keys.split(item.key)[0]:
        case "spec":
            spec_in(item, keys)
        case "homes":
            value_in(item, HomesAssigned)
        case "order":
            value_in(item, Ordered)
        case "outcome":
            outcome_of(item)
        case "extended":
            extension_of(item)
        case "configs":
            config_of(item)
        case "nodes":
            node_of(item)
        case "assign":
            attempt_of(item)
        case "saving":
            saving_of(item)
        case "quarantined" | "quarantined_for":
            _set_aside(item)
        case "visits":
            visits_in([item])
        case "profiles":
            value_in(item, ProfileResult)
        case "children":
            value_in(item, Parent)
        case "logged":
            number_in(item)


def _set_aside(item: KeyValue) -> NodeQuarantined:
    return value_in(item, NodeQuarantined, lambda event: event.node)


def visits_in(items: Iterable[KeyValue]) -> list[Visit]:
    """The visits that ``items`` hold, in the order of their commits. The value of a visit that was put back
    has the revision of its commit."""
    visits = [(value_in(item, Visit, _place), item.mod_revision) for item in items]
    visits.sort(key=lambda each: each[0].revision or each[1])
    return [replace(visit, revision=0) if visit.revision else visit for visit, _ in visits]


def _place(visit: Visit) -> str:
    return f"{visit.unit.config}/{visit.unit.epoch:05d}/{visit.index_in_epoch:05d}"
