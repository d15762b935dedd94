"""What does each config do next on each kind of node: train with which strategy, or profile one?

Of the strategies for one number of nodes the fastest is used, after each was profiled. A forecast chooses the
number of nodes (``gang_sizes``). It assumes linear speed-up for strategies that were not profiled yet: so
gangs are profiled when they may be useful, and not before.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from cerebro_elastic.core.decisions.gang_sizes import GangSeconds, NodeKind, gang_sizes
from cerebro_elastic.core.decisions.strategies import chooses, refusals
from cerebro_elastic.core.history.estimates import all_unit_seconds, estimates_of
from cerebro_elastic.core.history.progress import next_units, units_left
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Phase, Strategy


@dataclass(frozen=True, slots=True)
class NextStep:
    """What a config does next on a kind of node."""

    strategy: Strategy
    """How its unit is trained."""
    profile: bool = False
    """Profile the strategy, instead of a whole unit."""
    seconds: float | None = None
    """The expected seconds of a unit, if they are known."""


NextSteps: TypeAlias = Mapping[NodeKind, NextStep]
"""By kind of nodes that can do one."""
StepsBySize: TypeAlias = Mapping[NodeKind, Mapping[int, NextStep]]
"""By kind of nodes and size of the gang, smallest first."""


def kind_of(node: Node) -> NodeKind:
    """What the nodes of a gang have in common."""
    return node.hardware, node.ranks


def next_steps(state: State, plan: Plan, nodes: Mapping[str, Node]) -> Mapping[str, NextSteps]:
    """By config: its next step on each kind of ``nodes``, as if the config and they were idle."""
    node_counts = Counter(map(kind_of, nodes.values()))
    if not chooses(plan):
        (only,) = plan.strategies
        return dict.fromkeys(state.configs, _only_steps(only, frozenset(node_counts.items())))
    by_size: dict[str, StepsBySize] = {}
    for config in state.configs.values():
        if units := next_units(config, plan):
            by_kind = {
                kind: steps_by_size(config, units[0].phase, kind, n, state, plan)
                for kind, n in node_counts.items()
            }
            by_size[config.id] = {kind: steps for kind, steps in by_kind.items() if steps}
    sizes = gang_sizes(_remaining_seconds(by_size, state, plan, nodes), node_counts)
    return {
        config: {kind: steps[sizes[config][kind]] for kind, steps in by_size.get(config, {}).items()}
        for config in state.configs
    }


@lru_cache(maxsize=1)  # one object for all moments: what depends on it need not be computed anew
def _only_steps(only: Strategy, node_counts: frozenset[tuple[NodeKind, int]]) -> NextSteps:
    return {kind: NextStep(only) for kind, _ in node_counts if _fits(only, kind, dict(node_counts))}


def steps_by_size(
    config: Config, phase: Phase, kind: NodeKind, most: int, state: State, plan: Plan
) -> dict[int, NextStep]:
    """The config's next step on a ``kind`` of which ``most`` nodes exist, by size of the gang, smallest
    first.

    Before a training unit: a strategy that was not profiled yet. Otherwise the fastest feasible one.
    """
    hardware, _ = kind
    refused = refusals(config, hardware, state.profiles, plan)
    known = {e.strategy: e.seconds for e in estimates_of(config, state) if e.hardware == hardware}
    steps: dict[int, NextStep] = {}
    for size in sorted({strategy.nodes for strategy in plan.strategies}):
        feasible = [
            c
            for c in plan.strategies
            if c.nodes == size and c not in refused and _fits(c, kind, {kind: most})
        ]
        untried = [strategy for strategy in feasible if strategy not in known]
        if untried and phase is Phase.TRAIN:
            steps[size] = NextStep(untried[0], profile=True)
        elif feasible:
            fastest = min(feasible, key=lambda strategy: known.get(strategy, math.inf))
            steps[size] = NextStep(fastest, seconds=known.get(fastest))
    return steps


def _fits(strategy: Strategy, kind: NodeKind, node_counts: Mapping[NodeKind, int]) -> bool:
    """Whether enough nodes of the kind exist, with enough ranks for the strategy."""
    return strategy.nodes <= node_counts[kind] and strategy.ranks <= strategy.nodes * kind[1]


def _remaining_seconds(
    by_size: Mapping[str, StepsBySize], state: State, plan: Plan, nodes: Mapping[str, Node]
) -> dict[str, GangSeconds]:
    """Each config's remaining work, spread over the kinds of nodes as the partitions' homes are."""
    at_home = Counter(kind_of(nodes[n]) for names in state.homes.values() for n in names if n in nodes)
    unit_seconds = all_unit_seconds(state)
    work: dict[str, GangSeconds] = {}
    for config, by_kind in by_size.items():
        homes = {kind: at_home[kind] for kind in by_kind}
        shares = homes if any(homes.values()) else dict.fromkeys(by_kind, 1)
        units_per_share = units_left(state.configs[config], plan) / max(sum(shares.values()), 1)
        work[config] = {
            kind: {
                n: units_per_share * shares[kind] * seconds
                for n, seconds in _seconds(steps, unit_seconds[config]).items()
            }
            for kind, steps in by_kind.items()
        }
    return work


def _seconds(steps: Mapping[int, NextStep], unit_seconds: float) -> dict[int, float]:
    """The seconds of a unit by size of the gang. Until the smallest size was profiled, it is the only one."""
    seconds: dict[int, float] = {}
    for size, step in steps.items():
        if step.seconds is not None:
            seconds[size] = step.seconds
        elif step.profile:
            if not seconds:
                return {size: unit_seconds}
            seconds[size] = min(n * known for n, known in seconds.items()) / size
    return seconds or {min(steps): unit_seconds}
