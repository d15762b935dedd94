"""What each config does next on each kind of node: a unit by one of the plan's choices, or a trial of one.

Of the choices for one number of nodes the fastest is used; each is tried before. On how many nodes a config
is trained is chosen by a forecast (``gang_sizes``), in which what was not tried yet counts as if speed-up
were linear: so gangs are tried when they may be of use, and not before.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from cerebro_elastic.core.decisions.gang_sizes import Job, Kind, gang_sizes
from cerebro_elastic.core.decisions.strategies import chooses, refusals
from cerebro_elastic.core.history.estimates import all_unit_seconds
from cerebro_elastic.core.history.profiles import estimates_of
from cerebro_elastic.core.history.progress import next_units, units_left
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Phase, Strategy


@dataclass(frozen=True, slots=True)
class NextStep:
    """What a config does next on a kind of node: a unit by ``strategy``, which is expected to take so many
    ``seconds`` if anybody knows, or a trial of it."""

    strategy: Strategy
    profile: bool = False
    seconds: float | None = None


NextSteps: TypeAlias = Mapping[Kind, NextStep]
"""By kind of nodes, where there is one."""
BySize: TypeAlias = Mapping[Kind, Mapping[int, NextStep]]
"""By kind of nodes: what would be the turn on so many of them, fewest first."""


def kind_of(node: Node) -> Kind:
    """What the nodes of a gang have in common: their hardware, and the number of their ranks."""
    return node.hardware, node.ranks


def next_steps(state: State, plan: Plan, nodes: Mapping[str, Node]) -> Mapping[str, NextSteps]:
    """By config, what is its turn on ``nodes``, were it and they idle; empty if none of them could."""
    there = Counter(map(kind_of, nodes.values()))
    if not chooses(plan):
        (only,) = plan.strategies
        same = {kind: NextStep(only) for kind in there if _fits(only, kind, there)}
        return dict.fromkeys(state.configs, same)
    by_size: dict[str, BySize] = {}
    for config in state.configs.values():
        if units := next_units(config, plan):
            able = {
                kind: steps_by_size(config, units[0].phase, kind, n, state, plan) for kind, n in there.items()
            }
            by_size[config.id] = {kind: found for kind, found in able.items() if found}
    sizes = gang_sizes(_jobs(by_size, state, plan, nodes), there)
    return {
        config: {kind: found[sizes[config][kind]] for kind, found in by_size.get(config, {}).items()}
        for config in state.configs
    }


def steps_by_size(
    config: Config, phase: Phase, kind: Kind, most: int, state: State, plan: Plan
) -> dict[int, NextStep]:
    """What would be the config's turn on nodes of a ``kind``, of which there are ``most``, by how many of
    them take part, fewest first: before a training unit a choice that was not tried yet, else the fastest."""
    hardware, _ = kind
    refused = refusals(config, hardware, state.profiles, plan)
    known = {e.strategy: e.seconds for e in estimates_of(config, state) if e.hardware == hardware}
    found: dict[int, NextStep] = {}
    for size in sorted({strategy.nodes for strategy in plan.strategies}):
        feasible = [
            c
            for c in plan.strategies
            if c.nodes == size and c not in refused and _fits(c, kind, {kind: most})
        ]
        untried = [strategy for strategy in feasible if strategy not in known]
        if untried and phase is Phase.TRAIN:
            found[size] = NextStep(untried[0], profile=True)
        elif feasible:
            fastest = min(feasible, key=lambda strategy: known.get(strategy, math.inf))
            found[size] = NextStep(fastest, seconds=known.get(fastest))
    return found


def _fits(strategy: Strategy, kind: Kind, there: Mapping[Kind, int]) -> bool:
    """Whether there are as many nodes of the kind, with as many ranks, as the choice takes."""
    return strategy.nodes <= there[kind] and strategy.ranks <= strategy.nodes * kind[1]


def _jobs(
    by_size: Mapping[str, BySize], state: State, plan: Plan, nodes: Mapping[str, Node]
) -> dict[str, Job]:
    """What each config has left to do, dealt over the kinds of nodes as the partitions' homes are."""
    at_home = Counter(kind_of(nodes[n]) for names in state.homes.values() for n in names if n in nodes)
    usual = all_unit_seconds(state)
    jobs: dict[str, Job] = {}
    for config, able in by_size.items():
        homes = {kind: at_home[kind] for kind in able}
        shares = homes if any(homes.values()) else dict.fromkeys(able, 1)
        each = units_left(state.configs[config], plan) / max(sum(shares.values()), 1)
        jobs[config] = {
            kind: {n: each * shares[kind] * seconds for n, seconds in _seconds(found, usual[config]).items()}
            for kind, found in able.items()
        }
    return jobs


def _seconds(found: Mapping[int, NextStep], usual: float) -> dict[int, float]:
    """Of a unit, by the number of nodes. As long as nobody knows what it takes on the fewest, those are what
    is tried first."""
    seconds: dict[int, float] = {}
    for size, step in found.items():
        if step.seconds is not None:
            seconds[size] = step.seconds
        elif step.profile:
            if not seconds:
                return {size: usual}
            seconds[size] = min(n * each for n, each in seconds.items()) / size
    return seconds or {min(found): usual}
