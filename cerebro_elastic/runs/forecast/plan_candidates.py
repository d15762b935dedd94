"""The candidates of ``cerebro plan``, and the rules for leaving some out. They follow Dike's pruning
(dike-2019, section 3.2), with profiles and simulations instead of its estimates.

==================================================  =====================================================
Dike                                                here
==================================================  =====================================================
workers get the same resources: others would be     all nodes are alike, and one strategy trains all units
stragglers
the balance of resources follows from the FLOPs     a strategy must have a profile, and memory enough for
                                                    every config
no more tasks than there is a use for (between      no more nodes than have a partition and a config to
nodes and devices)                                  train at a time
the cost model compares what is left (3.3)          the simulator's makespan and node hours: a candidate is
                                                    left out if another one is no worse in both
==================================================  =====================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cerebro_elastic.core.model.units import Strategy
from cerebro_elastic.system.words import counted


@dataclass(frozen=True, slots=True)
class PlanCandidate:
    """A way to run the recipe."""

    partitions: int
    """Number of training partitions."""
    nodes: int
    strategy: Strategy
    """The parallelism that trains all units, with its ranks and nodes."""

    def __str__(self) -> str:
        return f"{counted(self.nodes, 'node')}, {counted(self.partitions, 'partition')}, {self.strategy}"

    @property
    def groups(self) -> int:
        """The number of units that the nodes can train at a time."""
        return self.nodes // self.strategy.nodes


@dataclass(frozen=True, slots=True)
class Option:
    """A candidate with its forecast."""

    candidate: PlanCandidate
    """Nodes, partitions and strategy."""
    seconds: float
    """Seconds from the start of the first unit to the end of the last one."""
    idle: float
    """The share (0 to 1) of the nodes' time in which they have no unit."""
    gap: float
    """The share (0 to 1) by which the run ends later than the lower bound of any schedule."""

    @property
    def hours(self) -> float:
        """The cost in node hours."""
        return self.candidate.nodes * self.seconds / 3600


def why_skipped(
    candidate: PlanCandidate, configs: int, replicas: int, refusals: Mapping[Strategy, str]
) -> str | None:
    """Why a candidate is not simulated; ``None`` if it is.

    ``configs`` is the most configs trained at a time, ``replicas`` the number of nodes with each partition.
    ``refusals`` are the strategies refused by a profile, with its reasons.
    """
    strategy, groups = candidate.strategy, candidate.groups
    if strategy in refusals:
        return f"{strategy}: {refusals[strategy]}"
    if not groups:
        return f"{strategy} takes {strategy.nodes} nodes"
    if groups > candidate.partitions * replicas:
        partitions = counted(candidate.partitions, "partition")
        where = "" if replicas == 1 else f" on {replicas} nodes each"
        return f"nodes would be idle: {partitions}{where} for {groups} units at a time"
    if groups > configs:
        return f"nodes would be idle: {counted(configs, 'config')} for {groups} units at a time"
    return None


def why_dominated(options: Sequence[Option]) -> dict[PlanCandidate, str]:
    """The candidates that are no better than another one in time and in node hours, with that one's name. Of
    equal candidates the first one stays."""
    reasons: dict[PlanCandidate, str] = {}
    for place, option in enumerate(options):
        better = [other for at, other in enumerate(options) if _as_good(other, option, first=at < place)]
        if better:
            reasons[option.candidate] = f"neither faster nor cheaper than {best(better).candidate}"
    return reasons


def _as_good(other: Option, option: Option, *, first: bool) -> bool:
    theirs, ours = (other.seconds, other.hours), (option.seconds, option.hours)
    no_worse = theirs[0] <= ours[0] and theirs[1] <= ours[1]
    return no_worse and (theirs != ours or first)


def best(options: Sequence[Option]) -> Option:
    """The option with the least product of time and node hours: twice as many nodes are worth it if they make
    the run more than 1.41 times as fast."""
    return min(options, key=lambda option: option.seconds * option.hours)
