"""What does the history say so far? A run's state, and the values derived from visits and failures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cerebro_elastic.core.model.attempts import Attempt, FailureKind, Resources
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.nodes import Node, Stay
from cerebro_elastic.core.model.run import Extension, Plan
from cerebro_elastic.core.model.units import CheckpointRef, Measurement, Order, Strategy


@dataclass(frozen=True, slots=True)
class SpeedFactor:
    """How a node compares with the run's other nodes."""

    factor: float = 1.0
    """Its seconds for a unit, divided by those of a usual node."""
    units: int = 0
    """The number of visits from which the factor was learned."""
    at: int = 0
    """The number of the last of them among the visits of all nodes."""


@dataclass(frozen=True, slots=True)
class Streak:
    """A node's failures since it last committed, in the order of their tokens.

    Failures that are the config's own (``FailureKind.of_config``) do not count.
    """

    failures: int
    last: int
    """The token of the last."""
    kind: FailureKind
    story: str


@dataclass(frozen=True, slots=True)
class Estimate:
    """The known costs of a strategy for a config on a kind of node."""

    strategy: Strategy
    hardware: str
    """The kind of node."""
    seconds: float
    """Training seconds of a unit: from the profile, refined by visits."""
    bytes: int
    """The highest number of bytes that a rank had in use during the profile."""
    refusal: str | None = None
    """Why the profile refused the strategy; ``None`` if it is feasible."""
    units: int = 0
    """The number of visits since the profile."""


@dataclass(frozen=True, slots=True)
class EpochSeconds:
    """The expected seconds of a config's units on a node of factor 1, hops included."""

    usual: float | None = None
    """Of a unit that does not end an epoch; ``None`` without one."""
    last: float | None = None
    """Of a unit that ends an epoch, with its validation."""
    evaluation: float | None = None
    """Of a separate evaluation unit."""


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a config's curve."""

    units: int
    """The config's whole training units, its parent's included."""
    epochs: int
    """Its full epochs, its parent's included."""
    metrics: Mapping[str, float]
    """Its logged metrics at that point."""
    ends: bool = False
    """An epoch ends here: the metrics are the epoch's."""
    checkpoint: CheckpointRef | None = None
    """Its state there."""


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """The cost of the visits of one node, or of one config."""

    seconds: float = 0.0
    """Time in the task."""
    until: float = 0.0
    """When the last of them ended: wall-clock seconds."""
    resources: Resources = field(default_factory=Resources)
    """Of a node: those of the last unit that it led."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The cost of all visits so far. Times are those of the nodes' wall clocks."""

    units: int = 0
    """Whole training units."""
    reused: int = 0
    """Reused units of earlier runs, besides these: they count towards a budget of units, but took no time of
    this run."""
    seconds: float = 0.0
    """Node seconds: loads, saves and fetches included, a gang's for each of its nodes."""
    began: float | None = None
    """When the first visit began; ``None`` before the first."""
    until: float = 0.0
    """When the last visit ended."""
    nodes: Mapping[str, NodeUsage] = field(default_factory=dict)
    configs: Mapping[str, NodeUsage] = field(default_factory=dict)
    batches_made: int = 0
    batches_shared: int = 0
    """Batches reused: the host had made them for other configs."""
    data_seconds: float = 0.0
    """Seconds for which training waited for batches."""
    differing: str = ""
    """The maker of a row that differed from the run's kept one, and the node that saw it; "" if none did."""

    @property
    def elapsed(self) -> float:
        """Seconds of wall time from the first begin to the last end."""
        return 0.0 if self.began is None else max(0.0, self.until - self.began)


@dataclass(frozen=True, slots=True)
class State:
    """The result of the history up to ``revision``.

    ``streaks``, ``quarantined`` and ``quarantined_for`` are kept by the node's name, because a machine stays
    the same when it registers again.
    """

    plan: Plan | None = None
    """The run's plan; ``None`` before the run is opened."""
    configs: Mapping[str, Config] = field(default_factory=dict)
    nodes: Mapping[str, Node] = field(default_factory=dict)
    """The registered nodes by name."""
    homes: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """By partition: the names of its home nodes."""
    attempts: Mapping[str, Attempt] = field(default_factory=dict)
    """The attempts in training, by node; a gang's under each of its nodes."""
    streaks: Mapping[str, Streak] = field(default_factory=dict)
    """The failures of nodes whose last units failed, by node."""
    quarantined: Mapping[str, str] = field(default_factory=dict)
    """The nodes that are quarantined, and why."""
    quarantined_for: Mapping[str, int] = field(default_factory=dict)
    """By node: the token of the failure for which it was last quarantined, as long as its streak lasts."""
    timings: Mapping[str, float] = field(default_factory=dict)
    """By config: the expected seconds of a unit on a node of factor 1."""
    speed_factors: Mapping[str, SpeedFactor] = field(default_factory=dict)
    leader: str | None = None
    """The id of the controller that leads."""
    outcome: str | None = None
    """How the run ended; ``None`` while it is live."""
    profiles: Mapping[str, tuple[Estimate, ...]] = field(default_factory=dict)
    """By config: the known costs of the profiled strategies."""
    revision: int = 0
    """The revision of the last event."""
    curves: Mapping[str, tuple[Point, ...]] = field(default_factory=dict)
    """By config: its curve, for the search."""
    usage: Usage = field(default_factory=Usage)
    """The cost of the visits, for the search and for forecasts."""
    batches: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """By node, where the plan ``prefers_made``: the last epochs and partitions whose batches its host has
    made."""
    asked: int = 0
    """The revision at which a person last created, stopped or resumed a config."""
    saving: Mapping[str, Attempt] = field(default_factory=dict)
    """By node: the attempt that is trained and being saved. During the save the node may train another one,
    the config may not."""
    queued: Mapping[str, Attempt] = field(default_factory=dict)
    """By node: the attempt that follows when the one in ``attempts`` is trained."""
    committed: Mapping[str, int] = field(default_factory=dict)
    """By node: the highest token of its committed attempts."""
    fetches: tuple[float, ...] = ()
    """The waits, in seconds, of the last units whose partition had to be fetched."""
    hops: tuple[float, ...] = ()
    """The seconds of the loads or saves of the last units."""
    order: Order = ()
    """The last order proposed by a planner."""
    extension: Extension | None = None
    """The last extension; ``None`` if the run was not extended."""
    measured: tuple[Measurement, ...] = ()
    """The measurements on the test set, in order."""
    extended: int = 0
    """The revision of the last extension. Nodes registered before it have the old plan, and get no units."""
    stays: Mapping[str, Stay] = field(default_factory=dict)
    """By their names: the times in which nodes were registered."""
    epoch_seconds: Mapping[str, EpochSeconds] = field(default_factory=dict)
    """By config: the expected seconds of its units, with validation apart."""

    def running(self, config: str) -> Attempt | None:
        """The attempt that the config is in, if any: in training, queued, or being saved."""
        return next((a for a in self.underway() if a.unit.config == config), None)

    def is_queued(self, attempt: Attempt) -> bool:
        """Whether the attempt waits for its node to be free."""
        return self.queued.get(attempt.node) == attempt

    def underway(self) -> list[Attempt]:
        """All attempts, in training, queued or being saved, in the order of their assignment; a gang's
        once."""
        training = [attempt for name, attempt in self.attempts.items() if name == attempt.node]
        return sorted([*training, *self.queued.values(), *self.saving.values()], key=lambda a: a.token)

    def attempt(self, node: str, token: int) -> Attempt | None:
        """The node's attempt of this ``token``, in training, queued or being saved, if it has one."""
        attempts = (self.attempts.get(node), self.queued.get(node), self.saving.get(node))
        return next((a for a in attempts if a is not None and a.token == token), None)

    def may_report(self, attempt: Attempt) -> bool:
        """Whether the attempt could commit: all its registrations are valid, its config is live and at the
        attempt's revision."""
        config = self.configs.get(attempt.unit.config)
        return (
            all(
                member.node in self.nodes and self.nodes[member.node].registration == member.registration
                for member in attempt.members
            )
            and config is not None
            and config.status is Status.LIVE
            and config.revision == attempt.config_revision
        )
