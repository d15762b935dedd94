"""What configs wait for that nobody trains now, where it is more than their turn: for people."""

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
    """What a config waits for: that the ``nodes`` of its gang are idle together, or, if there are none that
    could train it, for what it ``lacks``."""

    nodes: tuple[str, ...] = ()
    lacks: str | None = None


def waits(state: State, plan: Plan) -> dict[str, Wait]:
    """By config, for live ones that are in no attempt, once the run has its least number of nodes."""
    if all(strategy.ranks == 1 for strategy in plan.strategies) or waiting(state, plan):
        return {}
    nodes = {node.name: node for node in used_nodes(state, plan)}
    idle = [name for name in nodes if name not in state.attempts]
    found = {}
    for name, some in placements(state, plan, nodes, next_steps(state, plan, nodes)).items():
        config = state.configs[name]
        if config.status is not Status.LIVE or state.running(name):
            continue
        if not some:
            found[name] = Wait(lacks=_lack(config, nodes, state, plan))
        elif all(placement.strategy.nodes > 1 for placement in some):
            found[name] = Wait(tuple(node.name for node in nearest(some, nodes, idle)))
    return found


def _lack(config: Config, nodes: Mapping[str, Node], state: State, plan: Plan) -> str:
    """What the choice takes that asks for least, of those that are not refused on all nodes, and what there
    is."""
    kinds = {node.hardware for node in nodes.values()}
    refused = [refusals(config, kind, state.profiles, plan) for kind in kinds]
    open_ones = [c for c in plan.strategies if not refused or any(c not in told for told in refused)]
    least = min(open_ones or plan.strategies, key=lambda strategy: (strategy.nodes, strategy.ranks))
    there = Counter(map(kind_of, nodes.values()))
    told = ", ".join(f"{count} {_of(*kind)}" for kind, count in sorted(there.items())) or "none"
    return f"{least} takes {_nodes(least)}; there are: {told}"


def _nodes(strategy: Strategy) -> str:
    each = -(-strategy.ranks // strategy.nodes)
    ranks = f"{each} rank{'' if each == 1 else 's'}"
    return (
        f"a node of {ranks}"
        if strategy.nodes == 1
        else f"{strategy.nodes} nodes of one kind with {ranks} each"
    )


def _of(hardware: str, ranks: int) -> str:
    return f"{hardware} of {ranks} rank{'' if ranks == 1 else 's'}"
