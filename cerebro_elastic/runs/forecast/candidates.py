"""Which candidates for a run are forecast, and which are left out, and why: Dike's pruning (dike-2019,
section 3.2), with trials and simulations in the place of its estimates.

==================================================  =====================================================
Dike                                                here
==================================================  =====================================================
workers get the same resources: others would be     all nodes are alike, and all units are trained by one
stragglers                                          choice
the balance of resources follows from the FLOPs     a choice must have been tried, and must have memory
                                                    enough for every config
no more tasks than there is a use for (between      no more nodes than have a partition and a config to
nodes and devices)                                  train at a time
the cost model compares what is left (3.3)          the simulator's makespan and node hours: who is no
                                                    better than another in both is left out
==================================================  =====================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cerebro_elastic.core.model.units import Strategy
from cerebro_elastic.words import counted


@dataclass(frozen=True, slots=True)
class PlanCandidate:
    """A run on so many ``nodes``, over so many ``partitions``, all its units being trained by ``strategy``."""

    partitions: int
    nodes: int
    strategy: Strategy

    def __str__(self) -> str:
        return f"{counted(self.nodes, 'node')}, {counted(self.partitions, 'partition')}, {self.strategy}"

    @property
    def groups(self) -> int:
        """How many units may be trained at a time."""
        return self.nodes // self.strategy.nodes


@dataclass(frozen=True, slots=True)
class Option:
    """A candidate with its forecast: ``seconds`` from the first unit's begin to the last one's end, the share
    of the nodes' time that they are ``idle``, and by which share it ends later than the lower bound
    (``gap``)."""

    candidate: PlanCandidate
    seconds: float
    idle: float
    gap: float

    @property
    def hours(self) -> float:
        """Node hours: what it costs."""
        return self.candidate.nodes * self.seconds / 3600


def useless(
    candidate: PlanCandidate, configs: int, replicas: int, refused: Mapping[Strategy, str]
) -> str | None:
    """Why it is not worth a forecast; ``None`` if it is. So many ``configs`` are trained at a time at most,
    each partition on so many nodes (its ``replicas``), and some choices were ``refused`` by their trials."""
    strategy, groups = candidate.strategy, candidate.groups
    if strategy in refused:
        return f"{strategy}: {refused[strategy]}"
    if not groups:
        return f"{strategy} takes {strategy.nodes} nodes"
    if groups > candidate.partitions * replicas:
        there = counted(candidate.partitions, "partition")
        held = "" if replicas == 1 else f" on {replicas} nodes each"
        return f"nodes would be idle: {there}{held} for {groups} units at a time"
    if groups > configs:
        return f"nodes would be idle: {counted(configs, 'config')} for {groups} units at a time"
    return None


def dominated(options: Sequence[Option]) -> dict[PlanCandidate, str]:
    """Those that are no better than another one in time and in node hours, and which one that is. Of equals
    the first stays."""
    found: dict[PlanCandidate, str] = {}
    for place, option in enumerate(options):
        ahead = [other for at, other in enumerate(options) if _as_good(other, option, first=at < place)]
        if ahead:
            found[option.candidate] = f"neither faster nor cheaper than {best(ahead).candidate}"
    return found


def _as_good(other: Option, option: Option, *, first: bool) -> bool:
    theirs, ours = (other.seconds, other.hours), (option.seconds, option.hours)
    no_worse = theirs[0] <= ours[0] and theirs[1] <= ours[1]
    return no_worse and (theirs != ours or first)


def best(options: Sequence[Option]) -> Option:
    """The one with the least product of time and node hours: twice as many nodes are worth it that make it
    more than 1.41 times as fast."""
    return min(options, key=lambda option: option.seconds * option.hours)
