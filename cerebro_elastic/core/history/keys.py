"""Which keys does a run's record have, what does each kind hold, and what does a state say of it?

``KINDS`` has one row per kind of keys, ``machine.TABLE`` one per event. From both together follow the store's
transactions, the reading of a snapshot, and the definition of a foreign key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cerebro_elastic.core.model.attempts import Attempt, ProfileResult, Visit
from cerebro_elastic.core.model.configs import Config, Parent
from cerebro_elastic.core.model.events import (
    ConfigCreated,
    ConfigEnded,
    ConfigResumed,
    Event,
    HomesAssigned,
    NodeEvent,
    NodeJoined,
    NodeQuarantined,
    Ordered,
    ProfileDone,
    RunEnded,
    RunExtended,
    StayEnded,
    UnitAssigned,
    UnitCommitted,
    UnitFailed,
    UnitsReused,
    UnitTrained,
    UnitWithdrawn,
)
from cerebro_elastic.core.model.nodes import Node, Stay
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Measurement, Unit

ROOT = "/cerebro/"
"""The prefix of all runs."""
_SECOND = "/second"
"""The end of a node's second key for assignments. (The name of a node has no slash.)"""


class Keys:
    """The names of one run's keys. What each holds is in ``KINDS``."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.prefix = prefix = f"{ROOT}{run}/"
        """The prefix of all keys of the run."""
        self.spec = prefix + "spec"
        self.event = prefix + "event"
        self.leader = prefix + "leader"
        self.homes = prefix + "homes"
        self.outcome = prefix + "outcome"
        self.extended = prefix + "extended"
        self.opening = prefix + "opening"
        self.control = prefix + "control/last"
        self.hosts = prefix + "hosts/"
        """The prefix of the hosts that take part."""
        self.measured = prefix + "measured/"
        """The prefix of measurements on the test set."""

    def node(self, name: str) -> str:
        return f"{self.prefix}nodes/{name}"

    def config(self, config: str) -> str:
        return f"{self.prefix}configs/{config}"

    def children(self, config: str) -> str:
        """The prefix of a config's children."""
        return f"{self.prefix}children/{config}/"

    def assign(self, node: str, *, second: bool = False) -> str:
        """One of a node's two keys for assignments. They are used in turns: while the node trains the attempt
        of one, the other may hold the attempt queued behind it."""
        return f"{self.prefix}assign/{node}{_SECOND if second else ''}"

    def saving(self, node: str) -> str:
        return f"{self.prefix}saving/{node}"

    def of_attempt(self, attempt: Attempt) -> list[str]:
        """The keys that hold the attempt: its assignments or, once it is trained, the note of its save."""
        if attempt.trained:
            return [self.saving(attempt.node)]
        return [self.assign(name, second=attempt.second_key) for name in attempt.nodes]

    def meeting(self, lead: str) -> str:
        return f"{self.prefix}meeting/{lead}"

    def quarantined(self, node: str) -> str:
        return f"{self.prefix}quarantined/{node}"

    def quarantined_for(self, node: str) -> str:
        return f"{self.prefix}quarantined_for/{node}"

    def logged(self, config: str) -> str:
        return f"{self.prefix}logged/{config}"

    def profile(self, config: str, attempt: int) -> str:
        return f"{self.prefix}profiles/{_profile_name(config, attempt)}"

    def visits(self, config: str, epoch: int | None = None) -> str:
        """The prefix of a config's visits, or of those of one ``epoch``."""
        return f"{self.prefix}visits/{config}/" + ("" if epoch is None else f"{epoch:05d}/")

    def visit(self, unit: Unit, index_in_epoch: int) -> str:
        """One of the visits of the unit's epoch."""
        return f"{self.prefix}visits/{_visit_name(unit, index_in_epoch)}"

    def has_value(self, key: str) -> bool:
        """Whether a key of the run is signed; only the existence of the others counts."""
        return key.startswith(self.prefix) and not key.startswith((self.hosts, self.opening))

    def concerned(self, kind: str, state: State, event: Event) -> Mapping[str, str]:
        """The keys of a kind that an event may change or depends on, each with its name."""
        names = KINDS[kind].concerned
        if names is None:
            return {self.prefix + kind: ""}
        return {f"{self.prefix}{kind}/{name}": name for name in names(state, event)}

    def split(self, key: str) -> tuple[str, str]:
        """The key's kind and what follows it: ("nodes", "a"), ("spec", "")."""
        kind, _, rest = key.removeprefix(self.prefix).partition("/")
        return kind, rest

    def is_known(self, key: str) -> bool:
        """Whether the run's processes write such keys."""
        kind, rest = self.split(key)
        return kind in KINDS and KINDS[kind].has_names == bool(rest)


def _visit_name(unit: Unit, index_in_epoch: int) -> str:
    return f"{unit.config}/{unit.epoch:05d}/{index_in_epoch:05d}"


def _profile_name(config: str, attempt: int) -> str:
    return f"{config}/{attempt:012d}"


def visits_of(event: Event) -> tuple[Visit, ...]:
    """The visits that the event adds to the run."""
    match event:
        case UnitCommitted(visit=visit):
            return (visit,)
        case UnitsReused(visits=visits):
            return visits
    return ()


def _attempt_of(state: State, event: Event) -> Attempt | None:
    """The attempt that an event of a unit is about, if ``state`` has it; ``None`` for other events."""
    match event:
        case UnitAssigned(attempt=attempt):
            return attempt
        case UnitTrained(node=node, token=token) | UnitWithdrawn(node=node, token=token):
            return state.attempt(node, token)
        case UnitCommitted(visit=report) | UnitFailed(failure=report) | ProfileDone(profile=report):
            return state.attempt(report.node, report.attempt)
    return None


def named_in(event: Event) -> tuple[Sequence[str], Sequence[str]]:
    """The configs and the nodes that the event names."""
    match event:
        case ConfigCreated():
            return [name for config in event.configs for name in (config.id, *_parents_of(config))], ()
        case ConfigEnded(config=config) | ConfigResumed(config=config) | UnitsReused(config=config):
            return (config,), ()
        case NodeJoined(node=node):
            return (), (node.name,)
        case UnitAssigned(attempt=attempt):
            return (attempt.unit.config,), attempt.nodes
        case UnitCommitted(visit=report) | UnitFailed(failure=report) | ProfileDone(profile=report):
            return (report.unit.config,), (report.node,)
        case NodeEvent(node=node):
            return (), (node,)
    return (), ()


def _nodes_of(state: State, event: Event) -> Sequence[str]:
    """The nodes that the event is about, the lead of a gang first."""
    attempt = _attempt_of(state, event)
    return named_in(event)[1] if attempt is None else attempt.nodes


def _stays_of(_state: State, event: NodeJoined | StayEnded) -> Sequence[str]:
    if isinstance(event, StayEnded):
        return (event.stay,)
    return (Stay.of(event.node).name,) if event.node.joined else ()


def _configs_of(state: State, event: Event) -> Sequence[str]:
    attempt = _attempt_of(state, event)
    return named_in(event)[0] if attempt is None else (attempt.unit.config,)


def _parents_of(config: Config) -> Sequence[str]:
    """The config of the run from which it continues, if any."""
    return (config.parent.config,) if config.parent is not None and config.parent.config else ()


def _edges_of(_state: State, event: ConfigCreated) -> Sequence[str]:
    edges = ((config.parent, config.id) for config in event.configs)
    return [f"{edge.owner}/{name}" for edge, name in edges if edge is not None and edge.config]


def _edge(state: State, name: str) -> Parent | None:
    owner, _, child = name.partition("/")
    edge = state.configs[child].parent if child in state.configs else None
    return edge if edge is not None and edge.config and edge.owner == owner else None


def _assigned(state: State, name: str) -> Attempt | None:
    node, second = name.removesuffix(_SECOND), name.endswith(_SECOND)
    attempts = (state.attempts.get(node), state.queued.get(node))
    return next((attempt for attempt in attempts if attempt and attempt.second_key == second), None)


def _measured_name(found: Measurement) -> str:
    return f"{found.number:05d}"


def _quarantined_for(state: State, node: str) -> NodeQuarantined | None:
    if node not in state.quarantined_for:
        return None
    return NodeQuarantined(0, node, state.quarantined.get(node, ""), state.quarantined_for[node], 0.0)


def written_at(state: State, kind: str, name: str) -> int | None:
    """The revision at which, according to the state, the key was written, or created if it is leased; 0: no
    such key exists; ``None``: the state does not have the revision."""
    if kind == "control":
        return state.asked
    value = KINDS[kind].held(state, name)
    if value is None:
        return 0
    return getattr(value, KINDS[kind].revision) if KINDS[kind].revision else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of keys."""

    text: str
    """Their content, for people."""
    value: type | None = None
    """The class of their values, as JSON (``core/model/codec.py``); ``None``: the core does not read them."""
    own: Callable[[Keys, Any], Collection[str]] = lambda _keys, _value: ()
    """The keys that may hold the value; empty: any of the kind."""
    concerned: Callable[[State, Any], Iterable[str]] | None = None
    """The names of the keys that an event may change or depends on; ``None``: the kind has one key only."""
    held: Callable[[State, str], object] = lambda _state, _name: None
    """A key's value according to a state, by the key's name; ``None``: no such key exists, or the state does
    not have its value."""
    reported: Callable[[Any, str], object] | None = None
    """The value in the event that writes such a key, if states do not have it."""
    revision: str = ""
    """The field of the value with the key's revision: the last one, or the first one of a ``leased`` key."""
    guarded: bool = False
    """A writer of such a key compares it with the state."""
    leased: bool = False
    """They are always under a lease: without one they are foreign."""
    named: bool = False
    """No event writes them; each node, config, attempt or visit has one."""
    by: str = ""
    """Their writer, if no event writes them."""

    @property
    def has_names(self) -> bool:
        """Whether several exist, each with a name."""
        return self.named or self.concerned is not None


KINDS: Mapping[str, Kind] = {
    "spec": Kind(
        text="the resolved recipe, the plan, digests of data and code",
        value=Spec,
        own=lambda _keys, spec: [Keys(spec.plan.run).spec],
        held=lambda state, _: state.plan,
        guarded=True,
        by="`cerebro run` with changed code",
    ),
    "event": Kind(text="the event that the last transaction is", by="every transaction"),
    "leader": Kind(text="the leader's id", held=lambda state, _: state.leader, guarded=True, leased=True),
    "homes": Kind(
        text="the home nodes of each partition",
        value=HomesAssigned,
        held=lambda state, _: HomesAssigned(0, state.homes) if state.homes else None,
    ),
    "order": Kind(
        text="the last order of units that a solver found",
        value=Ordered,
        held=lambda state, _: Ordered(0, state.order) if state.order else None,
    ),
    "outcome": Kind(
        text="how the run has ended",
        value=RunEnded,
        held=lambda state, _: RunEnded(0, state.outcome) if state.outcome is not None else None,
        guarded=True,
    ),
    "extended": Kind(
        text="the last extension: epochs, and the configs that continue",
        value=RunExtended,
        held=lambda state, _: RunExtended(state.extended, state.extension) if state.extension else None,
    ),
    "measured": Kind(
        text="what a config's model has reached on the test set",
        value=Measurement,
        own=lambda keys, found: [f"{keys.measured}{_measured_name(found)}"],
        concerned=lambda _, event: [_measured_name(event.measurement)],
        held=lambda state, name: {_measured_name(found): found for found in state.measured}.get(name),
        guarded=True,
    ),
    "control": Kind(text="the last request of a person", concerned=lambda _state, _event: ("last",)),
    "nodes": Kind(
        text="host, ranks, devices, cached partitions, address",
        value=Node,
        own=lambda keys, node: [keys.node(node.name)],
        concerned=_nodes_of,
        held=lambda state, name: state.nodes.get(name),
        revision="registration",
        guarded=True,
        leased=True,
    ),
    "stays": Kind(
        text="since when a node was registered, its price, and until when",
        value=Stay,
        own=lambda keys, stay: [f"{keys.prefix}stays/{stay.name}"],
        concerned=_stays_of,
        held=lambda state, name: state.stays.get(name),
        revision="revision",
        guarded=True,
    ),
    "configs": Kind(
        text="hyper-parameters, status, epoch, visited partitions, last checkpoint, failures",
        value=Config,
        own=lambda keys, config: [keys.config(config.id)],
        concerned=_configs_of,
        held=lambda state, name: state.configs.get(name),
        revision="revision",
        guarded=True,
    ),
    "children": Kind(
        text="the configs that began with a checkpoint of a config, each with that checkpoint",
        value=Parent,
        concerned=_edges_of,
        held=_edge,
    ),
    "assign": Kind(
        text="what the node trains, or what waits behind that: unit, input checkpoint, strategy, what to "
        "prefetch. A node has two such keys, used in turns",
        value=Attempt,
        own=lambda keys, attempt: keys.of_attempt(attempt),
        concerned=lambda state, event: [
            name + end for name in _nodes_of(state, event) for end in ("", _SECOND)
        ],
        held=_assigned,
        revision="token",
        guarded=True,
    ),
    "saving": Kind(
        text="a trained unit whose state is saved behind the node's next unit",
        value=Attempt,
        own=lambda keys, attempt: [keys.saving(attempt.node)],
        concerned=_nodes_of,
        held=lambda state, name: state.saving.get(name),
        revision="trained",
        guarded=True,
    ),
    "visits": Kind(
        text="partition, nodes, checkpoints and digests, samples, seconds, metrics, strategy",
        value=Visit,
        own=lambda keys, visit: [keys.visit(visit.unit, visit.index_in_epoch)],
        concerned=lambda _, event: [_visit_name(v.unit, v.index_in_epoch) for v in visits_of(event)],
        reported=lambda event, name: next(
            replace(visit, revision=event.revision)
            for visit in visits_of(event)
            if _visit_name(visit.unit, visit.index_in_epoch) == name
        ),
    ),
    "profiles": Kind(
        text="what the profile of a strategy measured",
        value=ProfileResult,
        concerned=lambda _, event: [_profile_name(event.profile.unit.config, event.profile.attempt)],
        reported=lambda event, _name: event.profile,
    ),
    "quarantined": Kind(
        text="the node gets no units until the lease ends",
        value=NodeQuarantined,
        own=lambda keys, event: [keys.quarantined(event.node)],
        concerned=_nodes_of,
        held=lambda state, name: state.quarantined.get(name),
        guarded=True,
        leased=True,
    ),
    "quarantined_for": Kind(
        text="the last failure for which the node was quarantined: each counts once",
        value=NodeQuarantined,
        own=lambda keys, event: [keys.quarantined_for(event.node)],
        concerned=_nodes_of,
        held=_quarantined_for,
    ),
    "meeting": Kind(text="where the ranks of an attempt meet", named=True, by="rank 0 of the attempt"),
    "logged": Kind(
        text="how many visits the leader's loggers have written; `logged/<config>/end` is the revision of "
        "the end that they have; those of a tracker begin with its name, such as `logged/wandb/<config>`",
        named=True,
        by="the leader",
    ),
    "hosts": Kind(text="a host takes part", leased=True, named=True, by="hosts"),
    "opening": Kind(text="a host opens the run", leased=True, by="the host that opens the run"),
}
"""All kinds of keys, by what follows the prefix."""
