"""Fault plans: frozen values that say what happens to whom, and when.

A fault is due when the run has committed ``commit`` visits. Without a ``point`` it strikes then, from
outside; with one it strikes the next time that its process is there, from inside.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from cerebro_elastic.core.model.codec import decode, encode


class What(StrEnum):
    """The effect of a fault. To terminate is SIGTERM, to drain is ``cerebro drain``. A host that is cut off
    is unplugged; one that is deaf or mute still sends or still hears."""

    KILL = "kill"
    PAUSE = "pause"
    TERMINATE = "terminate"
    DRAIN = "drain"
    RAISE = "raise"
    DISK_FULL = "disk-full"
    FLIP = "flip a cached bit of"
    LOSE = "lose"
    DELAY = "delay"
    CUT = "cut off"
    DEAFEN = "deafen"
    MUTE = "mute"
    NO_ETCD = "cut off from etcd"
    NO_STORAGE = "cut off from storage"
    FLAP = "cut off again and again"
    SLOW = "slow down the link of"
    LOSSY = "lose packets of"
    NARROW = "lose the larger packets of"
    NARROW_TO = "lose the larger packets to"
    NARROW_FROM = "lose the larger packets from"
    AHEAD = "restart an hour ahead"
    BEHIND = "restart an hour behind"
    REFUSE = "answer 503 as"
    HANG = "hang"


class Whom(StrEnum):
    """What it hits: a node is its agent and its rank at once; the controller is the present leader; a host is
    all its processes, its disk and its link; the storage is the host with S3."""

    RANK = "rank"
    AGENT = "agent"
    NODE = "node"
    CONTROLLER = "controller"
    ETCD = "etcd"
    HOST = "host"
    STORAGE = "storage"


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


_ONLY = (Whom.CONTROLLER, Whom.STORAGE)
"""Of these there is one."""
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

HOST_KINDS: Mapping[Kind, tuple[float, ...]] = {
    Kind(What.CUT, Whom.HOST): (2.0, 12.0),
    Kind(What.DEAFEN, Whom.HOST): (2.0, 12.0),
    Kind(What.MUTE, Whom.HOST): (2.0, 12.0),
    Kind(What.NO_ETCD, Whom.HOST): (2.0, 12.0),
    Kind(What.NO_STORAGE, Whom.HOST): (2.0, 12.0, 40.0),
    Kind(What.FLAP, Whom.HOST): (10.0,),
    Kind(What.SLOW, Whom.HOST): (10.0,),
    Kind(What.LOSSY, Whom.HOST): (10.0,),
    Kind(What.NARROW, Whom.HOST): (20.0,),
    Kind(What.NARROW_TO, Whom.HOST): (20.0,),
    Kind(What.NARROW_FROM, Whom.HOST): (20.0,),
    Kind(What.KILL, Whom.HOST): (1.0, 10.0),
    Kind(What.AHEAD, Whom.HOST): (1.0,),
    Kind(What.BEHIND, Whom.HOST): (1.0,),
    Kind(What.REFUSE, Whom.STORAGE): (3.0, 20.0),
    Kind(What.HANG, Whom.STORAGE): (3.0, 40.0),
    Kind(What.SLOW, Whom.STORAGE): (10.0,),
    Kind(What.CUT, Whom.STORAGE): (3.0, 15.0),
    Kind(What.LOSSY, Whom.STORAGE): (10.0,),
    Kind(What.NARROW, Whom.STORAGE): (20.0,),
    Kind(What.KILL, Whom.ETCD): (3.0, 12.0),
    Kind(What.CUT, Whom.ETCD): (3.0, 12.0),
    Kind(What.FLAP, Whom.ETCD): (10.0,),
    Kind(What.LOSSY, Whom.ETCD): (10.0,),
    Kind(What.NARROW, Whom.ETCD): (20.0,),
}
"""The same for a run of several hosts. A request to S3 that hangs is given up after 30 s: one of these lasts
longer."""


@dataclass(frozen=True, slots=True)
class Fault:
    """``index`` is the number of the node, the host or the etcd member."""

    what: What
    whom: Whom
    commit: int
    point: Point | None = None
    index: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in (kinds := {**KINDS, **HOST_KINDS}):
            raise ValueError(f"there is no fault '{self.kind}'; there are: {', '.join(map(str, kinds))}")

    @property
    def kind(self) -> Kind:
        return Kind(self.what, self.whom, self.point)

    @property
    def of_node(self) -> bool:
        """Whether it hits a node, and not the controller or etcd."""
        return self.whom in (Whom.RANK, Whom.AGENT, Whom.NODE)

    def __str__(self) -> str:
        where = f" {self.index}" if self.whom not in _ONLY else ""
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
    kinds: Mapping[Kind, tuple[float, ...]] = KINDS,
) -> FaultPlan:
    """``faults`` faults, spread over the first ``commits`` commits of a run on ``nodes`` nodes, or hosts, and
    an etcd of ``members`` members; all ``kinds`` in turn, in random order, so that each comes about equally
    often."""
    rng = random.Random(seed)
    drawn: list[Kind] = []
    while len(drawn) < faults:
        drawn += rng.sample(list(kinds), len(kinds))
    times = sorted(rng.randint(1, commits) for _ in range(faults))
    among = {Whom.ETCD: members} | dict.fromkeys(_ONLY, 1)

    def fault(kind: Kind, commit: int) -> Fault:
        seconds, index = rng.choice(kinds[kind]), rng.randrange(among.get(kind.whom, nodes))
        return Fault(kind.what, kind.whom, commit, kind.point, index, seconds)

    return tuple(map(fault, drawn, times))


def plan_to_json(plan: FaultPlan) -> str:
    """One fault a line."""
    return "".join(encode(fault) + "\n" for fault in plan)


def plan_from_json(text: str) -> FaultPlan:
    """The plan that ``plan_to_json`` wrote. Raises ``UnreadableValue`` for a line that is no fault."""
    return tuple(decode(line, Fault) for line in text.splitlines())
