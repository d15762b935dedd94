"""What happened, one frozen value per transaction in the store, in the order of ``revision``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.values import (
    Attempt,
    Basis,
    Config,
    Failure,
    Node,
    Order,
    Plan,
    ProfileResult,
    RecordHead,
    Status,
    Visit,
)


@dataclass(frozen=True, slots=True)
class RunOpened:
    """The run exists; its plan never changes."""

    revision: int
    plan: Plan


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """A controller leads (``leader`` is its id), or none does (``None``). It decides by the spec that
    ``basis`` names, with these ``versions`` of packages; ``record`` is where its own record of the run ended
    when it stood for election."""

    revision: int
    leader: str | None
    basis: Basis | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    record: RecordHead | None = None


@dataclass(frozen=True, slots=True)
class ConfigCreated:
    """A config was added to the run, by the search or (``config.by_hand``) by a person."""

    revision: int
    config: Config


@dataclass(frozen=True, slots=True)
class ConfigEnded:
    """A config was ended: failed beyond its tries, or stopped, by the search or (``by_hand``) by a person."""

    revision: int
    config: str
    status: Status
    reason: str
    by_hand: bool = False


@dataclass(frozen=True, slots=True)
class ConfigResumed:
    """A stopped config goes on from its head: promoted by the search, or (``by_hand``) asked for by a
    person."""

    revision: int
    config: str
    reason: str
    by_hand: bool = False


@dataclass(frozen=True, slots=True)
class NodeJoined:
    """A node registered. If one of its name was there before, that one has left first."""

    revision: int
    node: Node


@dataclass(frozen=True, slots=True)
class NodeLeft:
    """A registration has ended: given up, or its lease ran out."""

    revision: int
    node: str


@dataclass(frozen=True, slots=True)
class NodeReady:
    """The ranks of a node that was starting are ready; its cache has these training partitions."""

    revision: int
    node: str
    cached: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeDraining:
    """A registered node was asked to leave, and given ``grace`` seconds."""

    revision: int
    node: str
    grace: float


@dataclass(frozen=True, slots=True)
class NodeQuarantined:
    """The controller gives the node of this name no units for ``seconds``, because of its last failures;
    ``failure`` is the token of the last of them."""

    revision: int
    node: str
    why: str
    failure: int
    seconds: float


@dataclass(frozen=True, slots=True)
class NodeReleased:
    """The time for which a node was set aside is over."""

    revision: int
    node: str


@dataclass(frozen=True, slots=True)
class NodeStalled:
    """A registered node shows no sign of life but its lease: ``why``, as its agent sees it, and ``since``
    when, by its wall clock."""

    revision: int
    node: str
    since: float
    why: str


@dataclass(frozen=True, slots=True)
class NodeRecovered:
    """A node that was stalled goes on."""

    revision: int
    node: str


@dataclass(frozen=True, slots=True)
class RecordMended:
    """The leader has put back what others than this run's processes had changed in its record: the ``keys``,
    as they are called behind the run's prefix. Attempts whose keys were among them cannot be put back, for
    their tokens are revisions: they are ``withdrawn``."""

    revision: int
    keys: tuple[str, ...]
    withdrawn: tuple[int, ...] = ()

    def names(self, kind: str) -> set[str]:
        """What the keys of this ``kind`` are called that were put back."""
        kinds = {kind, _FORMER_KEYS.get(kind, kind)}
        return {name for of, _, name in (key.partition("/") for key in self.keys) if of in kinds}


_FORMER_KEYS = {"quarantined": "aside"}
"""By kind of keys: its name in records of version 0.1."""


@dataclass(frozen=True, slots=True)
class StateRead:
    """The store had forgotten part of the history (compaction, or a restored snapshot), or somebody began to
    follow the run; this is the state that it had at ``revision``, from which the history goes on, and all
    ``visits`` that led to it, in the order of their commits."""

    revision: int
    state: State
    visits: tuple[Visit, ...] = ()


@dataclass(frozen=True, slots=True)
class HomesAssigned:
    """On which nodes each partition is at home."""

    revision: int
    homes: Mapping[int, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Ordered:
    """In which order nodes shall take units, as found outside of the decisions (``core/ports.Planner``). It
    binds nobody: the policy is shown it."""

    revision: int
    order: Order


@dataclass(frozen=True, slots=True)
class UnitAssigned:
    """An attempt was given to a node; its token is this event's revision."""

    revision: int
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class UnitTrained:
    """An attempt is trained, and its save goes on behind what its node does next."""

    revision: int
    node: str
    token: int


@dataclass(frozen=True, slots=True)
class UnitCommitted:
    """An attempt became a visit."""

    revision: int
    visit: Visit


@dataclass(frozen=True, slots=True)
class UnitFailed:
    """An attempt failed on a node that is alive, and says why."""

    revision: int
    failure: Failure


@dataclass(frozen=True, slots=True)
class ProfileDone:
    """An attempt at a trial has told how its choice does."""

    revision: int
    profile: ProfileResult


@dataclass(frozen=True, slots=True)
class UnitWithdrawn:
    """An assignment was taken back, by the controller or by its node, which leaves; the attempt can no
    longer commit."""

    revision: int
    node: str
    token: int


@dataclass(frozen=True, slots=True)
class RunEnded:
    """No config is live and none will be: ranks go home."""

    revision: int
    outcome: str


Event: TypeAlias = (
    RunOpened
    | LeaderChanged
    | ConfigCreated
    | ConfigEnded
    | ConfigResumed
    | NodeJoined
    | NodeLeft
    | NodeReady
    | NodeDraining
    | NodeQuarantined
    | NodeReleased
    | NodeStalled
    | NodeRecovered
    | RecordMended
    | StateRead
    | HomesAssigned
    | Ordered
    | UnitAssigned
    | UnitTrained
    | UnitCommitted
    | UnitFailed
    | ProfileDone
    | UnitWithdrawn
    | RunEnded
)

KINDS: Mapping[str, type[Event]] = {kind.__name__: kind for kind in Event.__args__}
"""Event classes by name, as ``codec.kind_of`` gives it."""
