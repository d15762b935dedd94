"""What does an idle config wait for, beyond its turn? An answer for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from cerebro_elastic.core.decisions.gangs import nearest
from cerebro_elastic.core.decisions.membership import used_nodes, waiting
from cerebro_elastic.core.decisions.next_steps import kind_of, next_steps
from cerebro_elastic.core.decisions.placements import placements
from cerebro_elastic.core.decisions.strategies import refusals
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Strategy


@dataclass(frozen=True, slots=True)
class Wait:
    """What a config waits for."""

    nodes: tuple[str, ...] = ()
    """The nodes of its gang, which must be idle together."""
    lacks: str | None = None
    """What no node offers, in words; ``None`` if nodes exist that can train it."""


def waits(state: State, plan: Plan) -> dict[str, Wait]:
    """By live config that is in no attempt, once the run has its least number of nodes."""
    if all(strategy.ranks == 1 for strategy in plan.strategies) or waiting(state, plan):
        return {}
    nodes = {node.name: node for node in used_nodes(state, plan)}
    idle = [name for name in nodes if name not in state.attempts]
    waits_by_config = {}
    for name, options in placements(state, plan, nodes, next_steps(state, plan, nodes)).items():
        config = state.configs[name]
        if config.status is not Status.LIVE or state.running(name):
            continue
        if not options.placements:
            waits_by_config[name] = Wait(lacks=_lack(config, nodes, state, plan))
        elif all(placement.strategy.nodes > 1 for placement in options.placements):
            gang = nearest(options.placements, nodes, idle)
            waits_by_config[name] = Wait(tuple(node.name for node in gang))
    return waits_by_config


def _lack(config: Config, nodes: Mapping[str, Node], state: State, plan: Plan) -> str:
    """What the least demanding possible strategy takes, and which nodes exist."""
    kinds = {node.hardware for node in nodes.values()}
    refused = [refusals(config, kind, state.profiles, plan) for kind in kinds]
    possible = [c for c in plan.strategies if not refused or any(c not in reasons for reasons in refused)]
    least = min(possible or plan.strategies, key=lambda strategy: (strategy.nodes, strategy.ranks))
    node_counts = Counter(map(kind_of, nodes.values()))
    counts = (
        ", ".join(f"{count} {_kind_label(*kind)}" for kind, count in sorted(node_counts.items())) or "none"
    )
    return f"{least} takes {_nodes(least)}; there are: {counts}"


def _nodes(strategy: Strategy) -> str:
    ranks_per_node = -(-strategy.ranks // strategy.nodes)
    ranks = f"{ranks_per_node} rank{'' if ranks_per_node == 1 else 's'}"
    return (
        f"a node of {ranks}"
        if strategy.nodes == 1
        else f"{strategy.nodes} nodes of one kind with {ranks} each"
    )


def _kind_label(hardware: str, ranks: int) -> str:
    return f"{hardware} of {ranks} rank{'' if ranks == 1 else 's'}"
