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
from functools import reduce

from cerebro_elastic.core.history.estimates import learn, waited
from cerebro_elastic.core.history.profiles import Profiles, profiled, refined
from cerebro_elastic.core.history.tallies import retell, streaks_of, with_visit
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
)
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.state import SpeedFactor, State
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
from cerebro_elastic.store.ledger.keys import Keys
from cerebro_elastic.words import counted


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
    named = ("spec", "homes", "order", "outcome", "leader")
    spec, homes, order, outcome, leader = (kinds.get(kind, {}).get("") for kind in named)
    nodes = [node_of(item) for item in kinds.get("nodes", {}).values()]
    attempts = {name: attempt_of(item) for name, item in kinds.get("assign", {}).items()}
    saving = {name: saving_of(item) for name, item in kinds.get("saving", {}).items()}
    configs = {c.id: c for c in map(config_of, kinds.get("configs", {}).values())}
    visits = visits_in(kinds.get("visits", {}).values())
    _check_whole(keys, spec is not None, configs, [*visits, *attempts.values(), *saving.values()])
    quarantined, quarantined_for = (
        [_set_aside(item) for item in kinds.get(k, {}).values()] for k in ("quarantined", "quarantined_for")
    )
    committed = _committed(visits)
    profiles = [value_in(item, ProfileResult) for item in kinds.get("profiles", {}).values()]
    timings, speed_factors = _learned(visits)
    plan = spec_in(spec, keys).plan if spec else None
    curves, usage = retell(configs.values(), visits, plan)
    asked = kinds.get("control", {}).get("last")
    return State(
        plan=plan,
        configs=configs,
        nodes=_with_visits(nodes, visits),
        homes=dict(value_in(homes, HomesAssigned).homes) if homes else {},
        order=value_in(order, Ordered).order if order else (),
        attempts=attempts,
        saving=saving,
        committed=committed,
        streaks=streaks_of(configs.values(), committed),
        quarantined={a.node: a.why for a in quarantined},
        quarantined_for={j.node: j.failure for j in quarantined_for if j.failure > committed.get(j.node, 0)},
        timings=timings,
        speed_factors=speed_factors,
        fetches=reduce(waited, visits, State().fetches),
        curves=curves,
        usage=usage,
        asked=asked.mod_revision if asked else 0,
        profiles=_known(profiles, visits),
        leader=leader_in(leader) if leader and leader.lease else None,
        outcome=outcome_of(outcome) if outcome else None,
        revision=snapshot.revision,
    )


def _check_whole(keys: Keys, opened: bool, configs: Collection[str], of: Iterable[Visit | Attempt]) -> None:
    """Raise ``ForeignValue`` if keys are gone without which there could not be the others."""
    gone = [keys.config(name) for name in sorted({each.unit.config for each in of}.difference(configs))]
    gone += [keys.spec] if configs and not opened else []
    if gone:
        raise ForeignValue(
            f"etcd's {counted(len(gone), 'key')} {', '.join(map(excerpt, gone[:3]))} must be there and are "
            "not: another program took them away, or a person. Whoever leads the run puts them back"
        )


def _with_visits(nodes: Iterable[Node], visits: Iterable[Visit]) -> Mapping[str, Node]:
    """The nodes by name, in the order of their registrations."""
    by_name: Mapping[str, Node] = {n.name: n for n in sorted(nodes, key=lambda n: n.registration)}
    for visit in visits:
        by_name = with_visit(by_name, visit)
    return by_name


def node_of(item: KeyValue) -> Node:
    """A node as registered at the revision that created its key."""
    return replace(value_in(item, Node, lambda node: node.name), registration=item.create_revision)


def config_of(item: KeyValue) -> Config:
    """A config at the revision that last wrote it."""
    return replace(value_in(item, Config, lambda config: config.id), revision=item.mod_revision)


def attempt_of(item: KeyValue) -> Attempt:
    """An attempt, its token the revision that assigned it."""
    attempt = value_in(item, Attempt)
    if item.key.rpartition("/")[2] not in attempt.nodes:
        raise foreign_value(item, f"it is an assignment of {', '.join(map(excerpt, attempt.nodes))}")
    return replace(attempt, token=item.mod_revision)


def saving_of(item: KeyValue) -> Attempt:
    """An attempt that is trained, since the revision that wrote it here."""
    return replace(value_in(item, Attempt, lambda attempt: attempt.node), trained=item.mod_revision)


def outcome_of(item: KeyValue) -> str:
    """How the run has ended."""
    return value_in(item, RunEnded).outcome


def leader_in(item: KeyValue) -> str:
    """The name of who leads."""
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
    return f"{visit.unit.config}/{visit.unit.epoch:05d}/{visit.k:05d}"


def _committed(visits: Iterable[Visit]) -> Mapping[str, int]:
    """The token of each node's last attempt that became a visit."""
    last: dict[str, int] = {}
    for visit in visits:
        last |= {name: max(visit.attempt, last.get(name, 0)) for name in visit.nodes}
    return last


def _known(profiles: Iterable[ProfileResult], visits: Iterable[Visit]) -> Profiles:
    """What trials and visits tell of the choices. A config is in one attempt at a time, and tokens grow."""
    known: Profiles = {}
    both: list[ProfileResult | Visit] = [*profiles, *visits]
    for told in sorted(both, key=lambda told: told.attempt):
        known = profiled(known, told) if isinstance(told, ProfileResult) else refined(known, told)
    return known


def _learned(visits: Iterable[Visit]) -> tuple[Mapping[str, float], Mapping[str, SpeedFactor]]:
    timings: Mapping[str, float] = {}
    speed_factors: Mapping[str, SpeedFactor] = {}
    for visit in visits:
        timings, speed_factors = learn(timings, speed_factors, visit)
    return timings, speed_factors
