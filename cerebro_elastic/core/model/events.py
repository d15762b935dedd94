"""What can happen in a run? One frozen value per transaction of the store.

The events of a run, in the order of their revisions, are its history. ``core/history/machine.py`` states when
each is possible and what it changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from cerebro_elastic.core.model.attempts import Attempt, Failure, ProfileResult, Visit
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Basis, Extension, Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Measurement, Order, RecordHead


@dataclass(frozen=True, slots=True)
class _Event:
    revision: int
    """The store's revision at which it happened. Revisions grow from event to event."""
    afresh: ClassVar[bool] = False
    """Whether the history restarts with it: it need not follow from earlier events."""


@dataclass(frozen=True, slots=True)
class NodeEvent(_Event):
    """An event of a node, or of an attempt on it."""

    node: str


@dataclass(frozen=True, slots=True)
class RunOpened(_Event):
    """The run was opened."""

    plan: Plan
    """The run's plan. Only an extension changes it."""


@dataclass(frozen=True, slots=True)
class LeaderChanged(_Event):
    """A controller was elected, or the leader's lease ended."""

    leader: str | None
    """The controller's id; ``None`` if no controller leads."""
    basis: Basis | None = None
    """The spec and code by which the controller decides."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """The versions of the packages that its decisions depend on."""
    record: RecordHead | None = None
    """The end of its own record of the run when it stood for election."""


@dataclass(frozen=True, slots=True)
class ConfigCreated(_Event):
    """The search or a person added a config to the run, with all of its trainings; or the search added
    trainings to one."""

    config: Config
    others: tuple[Config, ...] = ()
    """The other members of the same config (``core/history/members.py``) that begin with this one."""

    @property
    def configs(self) -> tuple[Config, ...]:
        """All added configs."""
        return (self.config, *self.others)

    @property
    def by_hand(self) -> bool:
        """A person created it, not the search."""
        return self.config.by_hand


@dataclass(frozen=True, slots=True)
class ConfigEnded(_Event):
    """A config failed beyond its tries, or was stopped."""

    config: str
    status: Status
    """``FAILED`` or ``STOPPED``."""
    reason: str
    """Why, for people."""
    by_hand: bool = False
    """A person stopped it, not the search."""


@dataclass(frozen=True, slots=True)
class ConfigResumed(_Event):
    """A stopped or failed config, or one that an extension resumes, continues from its head."""

    config: str
    reason: str
    """Why, for people."""
    by_hand: bool = False
    """A person, not the search, resumed it or named it for the extension."""
    extension: int = 0
    """``Extension.number`` of the extension that resumes it; 0 if it is resumed in a live run."""


@dataclass(frozen=True, slots=True)
class NodeJoined(_Event):
    """A node registered. No other node of its name is registered at this moment."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeLeft(NodeEvent):
    """A registration ended: the node gave it up, or its lease ran out."""


@dataclass(frozen=True, slots=True)
class StayEnded(_Event):
    """The leader noticed that a node is gone, and records the time to be paid."""

    stay: str
    """``Stay.name``."""
    left: float
    """When the node left, according to visits: wall-clock seconds."""


@dataclass(frozen=True, slots=True)
class NodeReady(NodeEvent):
    """The ranks of a node that was starting are ready."""

    cached: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeDraining(NodeEvent):
    """A registered node was asked to leave."""

    grace: float
    """The seconds it has for that."""


@dataclass(frozen=True, slots=True)
class NodeQuarantined(NodeEvent):
    """The controller gives a node no units for a while, because of its last failures."""

    why: str
    failure: int
    """The token of the last of its failures."""
    seconds: float


@dataclass(frozen=True, slots=True)
class NodeReleased(NodeEvent):
    """A node's quarantine is over."""


@dataclass(frozen=True, slots=True)
class NodeStalled(NodeEvent):
    """A registered node shows no sign of life except its lease."""

    began: float
    """Wall-clock seconds since the epoch, by the clock of the node's agent."""
    why: str


@dataclass(frozen=True, slots=True)
class NodeRecovered(NodeEvent):
    """A stalled node shows signs of life again."""


@dataclass(frozen=True, slots=True)
class StateRead(_Event):
    """The state was read from the store's keys.

    A reader begins with it where the store has no history: after a compaction, after a restored snapshot, or
    when the reader joins late. The history continues from it.
    """

    afresh = True
    state: State
    visits: tuple[Visit, ...] = ()
    """All visits that led to it, in the order of their commits."""


@dataclass(frozen=True, slots=True)
class HomesAssigned(_Event):
    """Partitions were assigned to home nodes."""

    homes: Mapping[int, tuple[str, ...]]
    """By partition: the names of its home nodes."""


@dataclass(frozen=True, slots=True)
class Ordered(_Event):
    """A planner outside the decisions proposed an order (``core/model/interfaces.py``, ``Planner``).

    The order reaches the policy as advice.
    """

    order: Order


@dataclass(frozen=True, slots=True)
class UnitAssigned(_Event):
    """A node, or a gang of nodes, got a unit."""

    attempt: Attempt
    """The attempt; its token is this event's revision."""


@dataclass(frozen=True, slots=True)
class UnitTrained(NodeEvent):
    """An attempt is trained. Its save overlaps the node's next unit."""

    token: int
    at: float = 0.0
    """When: wall-clock seconds; 0: unknown."""


@dataclass(frozen=True, slots=True)
class UnitCommitted(_Event):
    """An attempt became a visit."""

    visit: Visit


@dataclass(frozen=True, slots=True)
class UnitsReused(_Event):
    """A config takes over the visits of an equal config in an earlier run, without training them, and
    continues from there."""

    visits: tuple[Visit, ...]
    """The visits of the earlier run (``Visit.reused``) from the config's present state on, in order; the last
    one's checkpoint exists."""

    @property
    def config(self) -> str:
        """The config's id."""
        return self.visits[0].unit.config if self.visits else ""


@dataclass(frozen=True, slots=True)
class UnitFailed(_Event):
    """An attempt failed on a node that is alive."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class ProfileDone(_Event):
    """An attempt at a profile has measured its strategy."""

    profile: ProfileResult


@dataclass(frozen=True, slots=True)
class UnitWithdrawn(NodeEvent):
    """The controller, or a node that leaves, took an assignment back. The attempt cannot commit any more."""

    token: int


@dataclass(frozen=True, slots=True)
class RunEnded(_Event):
    """The run has ended: no config is live or will be."""

    outcome: str
    """How it ended, in a word: "finished"."""


@dataclass(frozen=True, slots=True)
class RunExtended(_Event):
    """An operator continues a run that has ended: with more epochs or configs, or to try failed configs
    again."""

    extension: Extension


@dataclass(frozen=True, slots=True)
class ConfigMeasured(_Event):
    """A config's model was measured on the test set, when the run had ended."""

    measurement: Measurement


Event: TypeAlias = (
    RunOpened
    | LeaderChanged
    | ConfigCreated
    | ConfigEnded
    | ConfigResumed
    | NodeJoined
    | NodeLeft
    | StayEnded
    | NodeReady
    | NodeDraining
    | NodeQuarantined
    | NodeReleased
    | NodeStalled
    | NodeRecovered
    | StateRead
    | HomesAssigned
    | Ordered
    | UnitAssigned
    | UnitTrained
    | UnitCommitted
    | UnitsReused
    | UnitFailed
    | ProfileDone
    | UnitWithdrawn
    | RunEnded
    | RunExtended
    | ConfigMeasured
)

KINDS: Mapping[str, type[Event]] = {kind.__name__: kind for kind in Event.__args__}
"""Event classes by name, as ``codec.kind_of`` gives it."""
