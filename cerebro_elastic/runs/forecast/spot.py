"""When shall a live run have how many nodes, so that it ends by its deadline and costs least?

The plan knows a price trace up to the deadline, and what the simulator knows of the run. Of the times between
price changes it takes the cheapest ones that suffice, and has one number of nodes in all of them:

- for each number of nodes, the least number of cheapest times with which a simulation of the rest ends by
  the deadline, less a margin (bisection); of the dearest of these only as much as is needed, at its end;
- of these plans the one that costs least. More nodes use less of the dear times, but wait more for others.

A node that has nothing left to do leaves. Whatever the prices become, a plan that is made anew at each change
keeps the deadline, as long as all nodes together could, and as long as the margin is enough for units that
take longer than expected. (Wu et al., NSDI 2024, have one job on one machine whose availability nobody knows;
their rule is to keep to uniform progress. Here the progress to keep to is simulated.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from cerebro_elastic.runs.forecast.prices import Segment

MARGIN = 0.1
"""The share of the time until the deadline that a plan does not use."""
_TRIMS = 3
"""How often the dearest time is halved."""


@dataclass(frozen=True, slots=True)
class NodeCount:
    """From when on the run has how many nodes."""

    begins: float
    """Seconds since 1970."""
    nodes: int
    price: float
    """Of an hour of a node, then."""
    change: int = 0
    """How many nodes join then or, below 0, leave."""


@dataclass(frozen=True, slots=True)
class Played:
    """What a simulation of a plan comes to."""

    ends: float | None
    """When the run ends; ``None``: it does not."""
    stays: Sequence[tuple[float, float]]
    """For each node that takes part: from when to when."""
    idle: Sequence[float]
    """For each node that is there at the end: from when it has nothing left to do."""


@dataclass(frozen=True, slots=True)
class SpotPlan:
    """When to have how many nodes."""

    counts: Sequence[NodeCount]
    """In the order of time; the first is now."""
    ends: float
    """When the run ends."""
    cost: float
    """What its nodes cost from now on."""


Play = Callable[[Sequence[NodeCount]], Played]
"""Simulates the rest of the run with these numbers of nodes."""


def cheapest(
    play: Play, segments: Sequence[Segment], deadline: float, numbers: Sequence[int], work: float
) -> SpotPlan | None:
    """The plan that costs least, with one of these ``numbers`` of nodes; ``None`` if none meets the
    ``deadline``.

    Args:
        play: The simulation.
        segments: The prices from now to the deadline.
        deadline: Seconds since 1970.
        numbers: The numbers of nodes to try.
        work: The node-seconds that are left at least, by which numbers are left out that cannot do.
    """
    best: SpotPlan | None = None
    # The highest numbers are the likeliest to meet the deadline, and then bound what others may cost.
    for number in sorted(numbers, reverse=True):
        if best is None or least_cost(segments, number, work) < best.cost:
            plan = _with_number(play, segments, deadline, number, work)
            if plan is not None and (best is None or plan.cost < best.cost):
                best = plan
    return best


def with_changes(plan: SpotPlan, present: int) -> SpotPlan:
    """The plan of a run with this number of nodes ``present``, with the changes at each moment."""
    before = [present, *(count.nodes for count in plan.counts)]
    changed = [replace(c, change=c.nodes - b) for c, b in zip(plan.counts, before, strict=False)]
    return replace(plan, counts=changed)


def least_cost(segments: Sequence[Segment], number: int, work: float) -> float:
    """A lower bound on what a plan with at most this number of nodes costs: nothing waits, and cheap times
    come first. Infinite if the ``work``, in node-seconds, does not fit in."""
    total = 0.0
    for segment in sorted(segments, key=lambda segment: segment.price):
        seconds = min(work, number * (segment.ends - segment.begins))
        total += segment.price * seconds / 3600
        work -= seconds
    return float("inf") if work > 1e-6 else total


def _with_number(
    play: Play, segments: Sequence[Segment], deadline: float, number: int, work: float
) -> SpotPlan | None:
    by_price = sorted(segments, key=lambda segment: (segment.price, segment.begins))

    def tried(chosen: Sequence[Segment]) -> SpotPlan | None:
        counts = list(_counts(segments, chosen, number))
        played = play(counts)
        if played.ends is None or played.ends > deadline:
            return None
        return SpotPlan(_with_departures(counts, played), played.ends, cost_of(played.stays, segments))

    seconds = accumulate(number * (segment.ends - segment.begins) for segment in by_price)
    low = sum(so_far < work for so_far in seconds) + 1  # with less the work does not fit in
    step, best, high = 1, None, low
    while best is None and low <= len(by_price):
        high = min(low + step - 1, len(by_price))
        best = tried(by_price[:high])
        low, step = (low, step) if best is not None else (high + 1, 2 * step)
    if best is None:
        return None
    while low < high:
        middle = (low + high) // 2
        plan = tried(by_price[:middle])
        if plan is None:
            low = middle + 1
        else:
            high, best = middle, plan
    *cheaper, dearest = by_price[:high]
    if all(part.begins < dearest.begins for part in cheaper):
        return best  # nothing cheaper comes later, so to wait saves nothing
    used, unused = dearest.ends - dearest.begins, 0.0
    for _ in range(_TRIMS):
        used /= 2
        part = Segment(dearest.begins + unused + used, dearest.ends, dearest.price)
        if (plan := tried([*cheaper, part])) is not None:
            unused += used
            best = min(best, plan, key=lambda plan: plan.cost)
    return best


def _counts(segments: Sequence[Segment], chosen: Sequence[Segment], number: int) -> Iterator[NodeCount]:
    """The numbers of nodes over time: ``number`` in what is ``chosen``; one of it may be a segment's end."""
    begins = {part.ends: part.begins for part in chosen}
    for segment in segments:
        begun = begins.get(segment.ends)
        if begun is None or begun > segment.begins:
            yield NodeCount(segment.begins, 0, segment.price)
        if begun is not None:
            yield NodeCount(begun, number, segment.price)


def cost_of(stays: Sequence[tuple[float, float]], segments: Sequence[Segment]) -> float:
    """What nodes cost that are there so long. Behind the last segment its price holds."""
    *first, last = segments
    tail = Segment(last.begins, float("inf"), last.price)
    return sum(segment.cost(*stay) for stay in stays for segment in (*first, tail))


def _with_departures(counts: Sequence[NodeCount], played: Played) -> list[NodeCount]:
    """The numbers of nodes until the run's end, without those that change nothing, and without each node
    that has nothing left to do. One stays, whatever the run takes: nodes leave by themselves when it ends."""
    assert played.ends is not None
    merged = list[NodeCount]()
    for count in counts:
        if count.begins < played.ends and (not merged or count.nodes != merged[-1].nodes):
            merged.append(count)
    leaving = [moment for moment in sorted(played.idle)[:-1] if moment < played.ends]
    for place, moment in enumerate(leaving, start=1):
        begins = max(moment, merged[-1].begins)
        price = [count.price for count in counts if count.begins <= begins][-1]
        left = NodeCount(begins, len(played.idle) - place, price)
        merged = [*(merged[:-1] if merged[-1].begins == left.begins else merged), left]
    return merged
