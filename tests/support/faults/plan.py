"""Fault plans: frozen values that say what happens to whom, and when.

A fault is due when the run has committed ``commit`` visits. Without a ``point`` it strikes then, from
outside; with one it strikes the next time that its process is there, from inside.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from cerebro_elastic.core.model.codec import decode, encode


class What(StrEnum):
    """The effect of a fault. To terminate is SIGTERM, to drain is ``cerebro drain``."""

    KILL = "kill"
    PAUSE = "pause"
    TERMINATE = "terminate"
    DRAIN = "drain"
    RAISE = "raise"
    DISK_FULL = "disk-full"
    FLIP = "flip a cached bit of"
    LOSE = "lose"
    DELAY = "delay"


class Whom(StrEnum):
    """The processes that it hits: a node is its agent and its rank at once; the controller is the present
    leader."""

    RANK = "rank"
    AGENT = "agent"
    NODE = "node"
    CONTROLLER = "controller"
    ETCD = "etcd"


class Point(StrEnum):
    """A place inside a process: a rank, but for the last, which is the controller's between its election and
    its first action. ``REQUEST`` is before a transaction is sent, ``ANSWER`` before its answer is heard."""

    IN_UNIT = "in the user's code"
    BEFORE_SAVE = "before save"
    MIDDLE_OF_SAVE = "middle of save"
    BEFORE_COMMIT = "between checkpoint and commit"
    REQUEST = "commit, request"
    ANSWER = "commit, answer"
    JOIN = "join"
    DRAIN = "drain"
    TAKEOVER = "takeover"


class Kind(NamedTuple):
    """A fault without its time and place."""

    what: What
    whom: Whom
    point: Point | None = None

    def __str__(self) -> str:
        return f"{self.what} {self.whom}" + (f" ({self.point})" if self.point else "")


_IN_RANK = tuple(point for point in Point if point is not Point.TAKEOVER)

KINDS: Mapping[Kind, tuple[float, ...]] = {
    Kind(What.KILL, Whom.RANK): (0.0,),
    **{Kind(What.KILL, Whom.RANK, point): (0.0,) for point in _IN_RANK},
    Kind(What.KILL, Whom.AGENT): (0.5, 7.0),
    Kind(What.KILL, Whom.NODE): (0.5, 7.0),
    **{Kind(What.KILL, Whom.NODE, point): (0.5,) for point in _IN_RANK},
    Kind(What.PAUSE, Whom.RANK): (1.0,),
    Kind(What.PAUSE, Whom.AGENT): (1.0, 7.0),
    Kind(What.PAUSE, Whom.NODE): (1.0, 7.0),
    Kind(What.PAUSE, Whom.AGENT, Point.IN_UNIT): (7.0,),
    Kind(What.PAUSE, Whom.NODE, Point.BEFORE_COMMIT): (7.0,),
    Kind(What.PAUSE, Whom.NODE, Point.REQUEST): (7.0,),
    Kind(What.TERMINATE, Whom.RANK): (0.5,),
    Kind(What.TERMINATE, Whom.NODE): (0.5,),
    Kind(What.TERMINATE, Whom.NODE, Point.IN_UNIT): (0.5,),
    Kind(What.DRAIN, Whom.NODE): (0.5,),
    Kind(What.RAISE, Whom.RANK, Point.IN_UNIT): (0.0,),
    Kind(What.DISK_FULL, Whom.RANK, Point.MIDDLE_OF_SAVE): (0.0,),
    Kind(What.FLIP, Whom.RANK, Point.IN_UNIT): (0.0,),
    Kind(What.LOSE, Whom.RANK, Point.REQUEST): (0.0,),
    Kind(What.LOSE, Whom.RANK, Point.ANSWER): (0.0,),
    Kind(What.DELAY, Whom.RANK, Point.BEFORE_COMMIT): (1.0,),
    Kind(What.DELAY, Whom.RANK, Point.REQUEST): (1.0,),
    Kind(What.KILL, Whom.CONTROLLER): (0.5, 7.0),
    Kind(What.KILL, Whom.CONTROLLER, Point.TAKEOVER): (0.5,),
    Kind(What.PAUSE, Whom.CONTROLLER): (1.0, 7.0),
    Kind(What.TERMINATE, Whom.CONTROLLER): (0.5,),
    Kind(What.KILL, Whom.ETCD): (0.5,),
    Kind(What.PAUSE, Whom.ETCD): (1.5,),
}
"""All kinds, each with the seconds that it may last: of a pause or delay, or until a killed process is
started again (a rank, by its agent). A lease lasts 5 s: some of these outlast it, some do not."""


@dataclass(frozen=True, slots=True)
class Fault:
    """``index`` is the node's number, or the etcd member's."""

    what: What
    whom: Whom
    commit: int
    point: Point | None = None
    index: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"there is no fault '{self.kind}'; there are: {', '.join(map(str, KINDS))}")

    @property
    def kind(self) -> Kind:
        return Kind(self.what, self.whom, self.point)

    @property
    def of_node(self) -> bool:
        """Whether it hits a node, and not the controller or etcd."""
        return self.whom in (Whom.RANK, Whom.AGENT, Whom.NODE)

    def __str__(self) -> str:
        where = f" {self.index}" if self.whom is not Whom.CONTROLLER else ""
        lasts = f" for {self.seconds:g} s" if self.seconds else ""
        inside = f", {self.point}" if self.point else ""
        return f"at commit {self.commit}: {self.what} {self.whom}{where}{inside}{lasts}"


FaultPlan: TypeAlias = tuple[Fault, ...]


def random_plan(
    seed: int,
    faults: int,
    *,
    nodes: int,
    commits: int,
    members: int = 1,
    kinds: Sequence[Kind] = tuple(KINDS),
) -> FaultPlan:
    """``faults`` faults, spread over the first ``commits`` commits of a run on ``nodes`` nodes and an etcd of
    ``members`` members; all ``kinds`` in turn, in random order, so that each comes about equally often."""
    rng = random.Random(seed)
    drawn: list[Kind] = []
    while len(drawn) < faults:
        drawn += rng.sample(kinds, len(kinds))
    times = sorted(rng.randint(1, commits) for _ in range(faults))
    return tuple(_fault(rng, kind, at, nodes, members) for kind, at in zip(drawn, times, strict=False))


def _fault(rng: random.Random, kind: Kind, commit: int, nodes: int, members: int) -> Fault:
    among = {Whom.CONTROLLER: 1, Whom.ETCD: members}.get(kind.whom, nodes)
    seconds = rng.choice(KINDS[kind])
    return Fault(kind.what, kind.whom, commit, kind.point, index=rng.randrange(among), seconds=seconds)


def plan_to_json(plan: FaultPlan) -> str:
    """One fault a line."""
    return "".join(encode(fault) + "\n" for fault in plan)


def plan_from_json(text: str) -> FaultPlan:
    """The plan that ``plan_to_json`` wrote. Raises ``UnreadableValue`` for a line that is no fault."""
    return tuple(decode(line, Fault) for line in text.splitlines())
