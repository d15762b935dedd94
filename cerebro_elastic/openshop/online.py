"""A run as it happens: units take other times than expected, nodes go and come.

The dispatcher knows of each only when it has happened; then, and every so often, the rest of the run is
planned and rehearsed again from where it stands. Following a rule online costs little where a fixed plan
would cost much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop
from math import inf

from numpy.typing import ArrayLike

from cerebro_elastic.errors import ScheduleError
from cerebro_elastic.openshop.bounds import lower_bound
from cerebro_elastic.openshop.checks import number, numbers, whole
from cerebro_elastic.openshop.dispatch import DispatchState, ScheduledUnit, Seconds, Tables
from cerebro_elastic.openshop.halving import Ladder, Rungs
from cerebro_elastic.openshop.instances import Instance
from cerebro_elastic.openshop.rollouts import DispatchSettings, adopt, plan, rollout
from cerebro_elastic.openshop.rules import Longest

REPLANS = 60
"""How often a run with unit times that differ from the expected ones is rehearsed again."""
TOLERANCE = 0.01
"""How far off, as a share, a unit's seconds may be without being a surprise."""
STEADY = DispatchSettings(Longest(), horizon=1.0, guard=0.005)
"""What is followed once units take other seconds than expected. Weights that were best in dry runs are only
so if all goes as in them; that a node is kept free for the longest config helps whatever happens."""
REPLANS_WITH_REPLICAS = 5
"""Then each time also solves the linear program and anneals."""


@dataclass(frozen=True, slots=True)
class Outage:
    """A node is away from ``start`` to ``end``, in seconds: it died, or (``start`` 0) joins late. Its unit
    at ``start`` is lost; what it holds is there again at ``end``. Outages of one node that overlap or touch
    are one."""

    node: int
    start: float
    end: float = inf


@dataclass(frozen=True, slots=True)
class Disturbances:
    """What a scheduler learns only as it happens. ``durations``: the seconds that units really take, in the
    shape of the instance's. ``halving``: who is trained on after the instance's epochs."""

    durations: ArrayLike | None = None
    outages: Sequence[Outage] = ()
    halving: Rungs | None = None

    @property
    def none(self) -> bool:
        """Whether all is known beforehand."""
        return self.durations is None and not self.outages and self.halving is None


@dataclass(slots=True)
class DispatchTrace:
    """What happened: the visits in the order of their starts, and those that were lost with a node."""

    visits: list[ScheduledUnit] = field(default_factory=list)
    lost: list[ScheduledUnit] = field(default_factory=list)


def follow(
    instance: Instance,
    disturbances: Disturbances,
    manners: Sequence[DispatchSettings],
    seed: int,
    decisions: int,
    shared: bool,
) -> DispatchTrace:
    """Dispatch ``instance`` while ``disturbances`` happen. With ``shared``, the first of ``manners`` is followed
    throughout, with no owners; else the best is looked for again and again."""
    return _Run(instance, disturbances, manners, seed, decisions, shared).play()


class _Run:
    def __init__(
        self,
        instance: Instance,
        disturbances: Disturbances,
        manners: Sequence[DispatchSettings],
        seed: int,
        decisions: int,
        shared: bool,
    ) -> None:
        self._shop = DispatchState(Tables(instance))
        self._manners, self._seed, self._shared = manners, seed, shared
        self._actual = _actual(instance, disturbances)
        self._happenings = _happenings(instance, disturbances)
        self._ladder = Ladder(disturbances.halving, instance) if disturbances.halving is not None else None
        noisy = self._actual is not None and not (shared and len(manners) == 1)
        self._replans = (REPLANS_WITH_REPLICAS if instance.replicated else REPLANS) if noisy else 1
        self._decisions = decisions // (self._replans + len(self._happenings) + 1)
        self._story = DispatchTrace()
        self._bound = 0.0
        self._manner = manners[0]

    def play(self) -> DispatchTrace:
        shop = self._shop
        if self._shared:
            shop.share()
        self._replan()
        expected = lower_bound(shop.tables.instance) if self._replans > 1 else 0.0
        pause = expected / self._replans or inf
        wake = pause
        while True:
            coming = self._happenings[0][0] if self._happenings else inf
            until = min(coming, wake)
            arrived: list[int] | None = None if self._ladder is None else []
            shop.run(self._manner.rule, self._actual, until, inf, self._story.visits.append, arrived)
            if arrived:
                self._promote(arrived)
                continue
            if shop.finished:
                return self._story
            if until == inf:
                stranded = sorted(
                    {j for mask in shop.undone for j in range(mask.bit_length()) if mask >> j & 1}
                )
                raise ScheduleError(
                    f"partitions {stranded} are held only by nodes that are away for good; give them "
                    "replicas, a finite fetch, or let the node come back"
                )
            while self._happenings and self._happenings[0][0] <= until:
                self._happen()
            # Ever more seldom in a run that takes much longer than expected.
            wake = wake + max(pause, wake / self._replans) if until == wake else wake
            self._replan()

    def _happen(self) -> None:
        _, node, away = heappop(self._happenings)
        if not away:
            self._shop.regain(node)
            return
        lost = self._shop.lose(node)
        if lost is not None:
            self._story.visits.remove(lost)
            self._story.lost.append(lost)

    def _promote(self, arrived: Sequence[int]) -> None:
        """Who goes on from the rungs that were come to does so at once."""
        assert self._ladder is not None
        promoted = [promotion for config in arrived for promotion in self._ladder.arrive(config)]
        for config, epochs in promoted:
            self._shop.extend(config, epochs)
        if promoted and self._shop.tables.spare:
            self._replan()

    def _replan(self) -> None:
        shop = self._shop
        if shop.finished:
            return
        if not self._shared:
            self._bound = plan(shop, self._seed)
        if self._decisions and not self._shared and self._surprised():
            self._manner = STEADY
        elif self._decisions or len(self._manners) > 1:
            manners = [self._manner, *self._manners]
            self._manner = rollout(shop, manners, self._bound, self._seed, self._decisions).manner
        if not self._shared:
            adopt(shop, self._manner, self._bound)

    def _surprised(self) -> bool:
        """Whether a unit has turned out to take other seconds than expected."""
        actual, expected = self._actual, self._shop.tables.seconds
        return actual is not None and any(
            abs(actual[v.config][v.partition][v.node] - expected[v.config][v.partition][v.node])
            > TOLERANCE * expected[v.config][v.partition][v.node]
            for v in self._story.visits
            if v.end <= self._shop.time
        )


def _actual(instance: Instance, disturbances: Disturbances) -> Seconds | None:
    if disturbances.durations is None:
        return None
    times = numbers(disturbances.durations, "disturbances.durations")
    if times.shape != instance.durations.shape:
        raise ScheduleError(
            f"disturbances.durations has the shape {times.shape}; it must be that of durations, "
            f"{instance.durations.shape}"
        )
    seconds: Seconds = replace(instance, durations=times).seconds().tolist()
    return seconds


def _happenings(instance: Instance, disturbances: Disturbances) -> list[tuple[float, int, bool]]:
    """When which node goes (True) or comes back (False), as a heap."""
    changes = []
    for node, start, end in _apart(_checked(disturbances.outages, instance.nodes)):
        changes.append((start, node, True))
        if end < inf:
            changes.append((end, node, False))
    return sorted(changes)


def _checked(outages: Sequence[Outage], nodes: int) -> list[tuple[int, float, float]]:
    """Node, start and end of each."""
    if not isinstance(outages, Sequence) or not all(isinstance(outage, Outage) for outage in outages):
        raise ScheduleError(f"outages is {outages!r}; it must be a list of Outage(node, start, end)")
    spans = []
    for k, outage in enumerate(outages):
        place = f"disturbances.outages[{k}]"
        start = number(outage.start, f"{place}.start")
        end = number(outage.end, f"{place}.end", infinite=True)
        if end <= start:
            raise ScheduleError(f"{place} is {outage}; an outage ends after it starts")
        spans.append((whole(outage.node, f"{place}.node", 0, nodes - 1), start, end))
    return spans


def _apart(spans: Sequence[tuple[int, float, float]]) -> list[tuple[int, float, float]]:
    """The same times away, without overlaps."""
    merged: list[tuple[int, float, float]] = []
    for node, start, end in sorted(spans):
        if merged and merged[-1][0] == node and start <= merged[-1][2]:
            start, end = merged[-1][1], max(end, merged.pop()[2])
        merged.append((node, start, end))
    return merged
