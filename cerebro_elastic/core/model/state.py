"""A run's state: what the history says so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cerebro_elastic.core.model.values import (
    Attempt,
    Config,
    FailureKind,
    Node,
    Order,
    Plan,
    Status,
    Strategy,
)


@dataclass(frozen=True, slots=True)
class SpeedFactor:
    """How a node compares with the run's other nodes: ``factor`` times their seconds for the same config,
    learned from ``units`` visits, the last of which was visit number ``at`` of all nodes'."""

    factor: float = 1.0
    units: int = 0
    at: int = 0


@dataclass(frozen=True, slots=True)
class Streak:
    """A node's failures since it last committed, in the order of their attempts' tokens: how many, and the
    last one's token, kind and story. Those that are the config's own (``FailureKind.of_config``) do not
    count."""

    failures: int
    last: int
    kind: FailureKind
    story: str


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is known of a choice for a config on a kind of node: the ``seconds`` that a unit takes in
    training, and the highest number of ``bytes`` that a rank had in use, from its trial and refined by
    ``units`` visits since; or why the trial refused it."""

    strategy: Strategy
    hardware: str
    seconds: float
    bytes: int
    refusal: str | None = None
    units: int = 0


@dataclass(frozen=True, slots=True)
class Point:
    """What a config had logged after so many whole training ``units`` and full ``epochs`` in all; where an
    epoch ``ends``, the metrics are the epoch's."""

    units: int
    epochs: int
    metrics: Mapping[str, float]
    ends: bool = False


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """What the visits of one node, or of one config, have cost: ``seconds`` in the task; the last of them
    ended at ``until``."""

    seconds: float = 0.0
    until: float = 0.0


@dataclass(frozen=True, slots=True)
class Usage:
    """What the visits so far have cost: whole training ``units``, ``seconds`` of nodes, and the time from the
    beginning of the first (``began``) to the latest end of one (``until``), by the nodes' wall clocks; and
    the same of each of the ``nodes`` and ``configs``."""

    units: int = 0
    seconds: float = 0.0
    began: float | None = None
    until: float = 0.0
    nodes: Mapping[str, NodeUsage] = field(default_factory=dict)
    configs: Mapping[str, NodeUsage] = field(default_factory=dict)

    @property
    def elapsed(self) -> float:
        """Seconds of wall time."""
        return 0.0 if self.began is None else max(0.0, self.until - self.began)


@dataclass(frozen=True, slots=True)
class State:
    """Everything that the history up to ``revision`` says.

    ``homes`` says on which nodes each partition is at home; ``attempts`` is by node, a gang's under each of
    its nodes. ``saving`` has by node the attempt that is trained and is being saved: the node is free for
    another, the config is not. ``committed`` has the token of each node's last attempt that became a visit.
    ``streaks`` has the nodes whose last units failed; ``quarantined`` those that are set aside, and why;
    ``quarantined_for`` the token of the failure for which a node was last set aside, as long as its streak lasts. (All
    three are by the node's name: a new registration of it makes no new machine.) ``timings`` has each
    config's expected seconds of a unit on a node of factor 1, ``speed_factors`` the nodes' factors; ``fetches`` has
    the seconds that the last units waited whose partition had to be fetched. ``profiles`` has by config what is
    known of the choices that were tried. ``curves`` and ``usage`` are for the search; ``asked`` is the
    revision at which a person last created, stopped or resumed a config. ``order`` is the last that was
    found for the policy. ``outcome`` is set when the run has ended.
    """

    plan: Plan | None = None
    configs: Mapping[str, Config] = field(default_factory=dict)
    nodes: Mapping[str, Node] = field(default_factory=dict)
    homes: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    attempts: Mapping[str, Attempt] = field(default_factory=dict)
    streaks: Mapping[str, Streak] = field(default_factory=dict)
    quarantined: Mapping[str, str] = field(default_factory=dict)
    quarantined_for: Mapping[str, int] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)
    speed_factors: Mapping[str, SpeedFactor] = field(default_factory=dict)
    leader: str | None = None
    outcome: str | None = None
    profiles: Mapping[str, tuple[Estimate, ...]] = field(default_factory=dict)
    revision: int = 0
    curves: Mapping[str, tuple[Point, ...]] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    asked: int = 0
    saving: Mapping[str, Attempt] = field(default_factory=dict)
    committed: Mapping[str, int] = field(default_factory=dict)
    fetches: tuple[float, ...] = ()
    order: Order = ()

    def running(self, config: str) -> Attempt | None:
        """The attempt that the config is in, if any: in training, or being saved."""
        return next((a for a in self.underway() if a.unit.config == config), None)

    def underway(self) -> list[Attempt]:
        """All attempts, a gang's once, and what is being saved, in the order in which they were assigned."""
        training = [attempt for name, attempt in self.attempts.items() if name == attempt.node]
        return sorted([*training, *self.saving.values()], key=lambda attempt: attempt.token)

    def attempt(self, node: str, token: int) -> Attempt | None:
        """The node's attempt of this ``token``, in training or being saved, if it is there."""
        both = (self.attempts.get(node), self.saving.get(node))
        return next((attempt for attempt in both if attempt is not None and attempt.token == token), None)

    def stands(self, attempt: Attempt) -> bool:
        """Whether the attempt could commit: all its registrations stand, its config is live and at the
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
