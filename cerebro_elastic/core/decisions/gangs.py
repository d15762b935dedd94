"""Gangs: which nodes do a unit together, and for whom idle nodes are held back.

A gang has nodes of one kind: of one hardware and number of ranks. They are on the lead's host if enough of
them are there, else on any; those on which the unit has failed take part only if there are not enough others.

Nodes become idle one by one, and who needs one would always come before who needs two. So nodes are held
back by this rule: *when as many configs that need fewer nodes have gone on since a config waits for its gang
as there are nodes (or as there are such configs, if they are fewer), idle nodes are held for it*: for the one
that has waited longest if there are several, and only those of the gang that lacks fewest. It needs no
memory: a config waits since its revision, and has gone on at its revision, or at the token of what it is in.

No gang starves: each unit that is given to others brings the moment nearer, and then what runs ends (no unit
is preempted) while nothing else gets the nodes that it needs. Nothing deadlocks: nodes are held for one
config at a time, and where nothing runs all nodes are idle, so that its gang is there. And nobody starves by
gangs: when one has committed it waits anew, behind all the others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from cerebro_elastic.core.decisions.next_steps import kind_of
from cerebro_elastic.core.decisions.placements import Placement, Placements
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.state import State


def companions(
    placement: Placement, nodes: Mapping[str, Node], idle: Collection[str]
) -> tuple[Node, ...] | None:
    """The other nodes of the gang, in the order of their ranks; ``None`` if too few of them are idle."""
    team = _team(placement, nodes, idle) if placement.strategy.nodes > 1 else ()
    return team if all(node.name in idle for node in team) else None


def overdue(state: State, placements: Placements, nodes: int) -> str | None:
    """The config that idle ones of the ``nodes`` are held for, if there is one."""
    running = {attempt.unit.config: attempt.token for attempt in state.underway()}
    needs = {
        name: max(placement.strategy.nodes for placement in some) for name, some in placements.items() if some
    }
    gone_on = {name: max(state.configs[name].revision, running.get(name, 0)) for name in needs}
    longest: dict[int, tuple[int, str]] = {}
    for name, need in needs.items():
        if need > 1 and name not in running:
            longest[need] = min(longest.get(need, (gone_on[name], name)), (gone_on[name], name))
    passed_over = []
    for need, (since, name) in longest.items():
        others = [at for other, at in gone_on.items() if needs[other] < need]
        if others and sum(at > since for at in others) >= min(len(others), nodes):
            passed_over.append((since, name))
    return min(passed_over)[1] if passed_over else None


def held(placements: Sequence[Placement], nodes: Mapping[str, Node], idle: Collection[str]) -> set[str]:
    """The idle nodes of the gang that lacks fewest."""
    return {node.name for node in nearest(placements, nodes, idle)} & set(idle)


def nearest(
    placements: Sequence[Placement], nodes: Mapping[str, Node], idle: Collection[str]
) -> tuple[Node, ...]:
    """The gang that lacks fewest idle nodes, in the order of its ranks; none if no offer takes several."""
    gangs = [(o.lead, *_team(o, nodes, idle)) for o in placements if o.strategy.nodes > 1]
    return max(gangs, key=lambda gang: sum(node.name in idle for node in gang), default=())


def _team(placement: Placement, nodes: Mapping[str, Node], idle: Collection[str]) -> tuple[Node, ...]:
    """The lead's companions, idle ones rather than busy ones."""
    lead, size = placement.lead, placement.strategy.nodes
    alike = [node for node in nodes.values() if kind_of(node) == kind_of(lead)]
    fresh = [node for node in alike if node.name not in placement.failed]
    pool = fresh if len(fresh) >= size else alike
    near = [node for node in pool if node.host == lead.host]
    pool = near if len(near) >= size else pool
    others = [node for node in pool if node.name != lead.name]
    others.sort(key=lambda node: (node.name not in idle, node.host != lead.host, node.host, node.name))
    return tuple(others[: size - 1])
