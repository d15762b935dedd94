"""Which nodes form a gang, and for which config are idle nodes held back?

A gang consists of nodes of one kind: the same hardware and number of ranks. They are on the lead's host if
that has enough of them. Nodes on which the unit has failed take part only if too few others exist.

Nodes become idle one by one, so a config that needs one node would always come before a config that needs
two. Hence this rule. A config that waits for a gang is overdue when, since it began to wait, as many configs
that need fewer nodes have gone on as the run has nodes (or as such configs exist, if they are fewer). Idle
nodes are held back for the overdue config that has waited longest: only the nodes of the gang that lacks the
fewest. The rule needs no memory: a config waits since its revision, and has gone on at its revision or at the
token of its attempt.

- No gang starves: each unit that others get brings the moment nearer. Then the running units end, and nothing
  else gets the nodes that it needs.
- Nothing deadlocks: nodes are held back for one config at a time. If nothing runs, all nodes are idle, so its
  gang is complete.
- No single-node config starves: after a commit the gang's config waits anew, behind all others.
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
    """The gang's nodes besides the lead, in the order of their ranks; ``None`` if too few of them are
    idle."""
    companion_nodes = _companions(placement, nodes, idle) if placement.strategy.nodes > 1 else ()
    return companion_nodes if all(node.name in idle for node in companion_nodes) else None


def overdue(state: State, placements: Placements, nodes: int) -> str | None:
    """The config for which idle nodes are held back, if any; ``nodes`` is the number of nodes in use."""
    needs = {name: options.most_nodes for name, options in placements.items() if options.most_nodes}
    if all(need == 1 for need in needs.values()):
        return None
    running = {attempt.unit.config: attempt.token for attempt in state.underway()}
    gone_on = {name: max(state.configs[name].revision, running.get(name, 0)) for name in needs}
    longest_waiting: dict[int, tuple[int, str]] = {}
    for name, need in needs.items():
        if need > 1 and name not in running:
            longest_waiting[need] = min(
                longest_waiting.get(need, (gone_on[name], name)), (gone_on[name], name)
            )
    passed_over = []
    for need, (since, name) in longest_waiting.items():
        rivals = [at for other, at in gone_on.items() if needs[other] < need]
        if rivals and sum(at > since for at in rivals) >= min(len(rivals), nodes):
            passed_over.append((since, name))
    return min(passed_over)[1] if passed_over else None


def held_back(placements: Sequence[Placement], nodes: Mapping[str, Node], idle: Collection[str]) -> set[str]:
    """The idle nodes of the gang that lacks the fewest."""
    return {node.name for node in nearest(placements, nodes, idle)} & set(idle)


def nearest(
    placements: Sequence[Placement], nodes: Mapping[str, Node], idle: Collection[str]
) -> tuple[Node, ...]:
    """The gang that lacks the fewest idle nodes, in the order of its ranks; empty without a gang."""
    gangs = [(nodes[o.lead], *_companions(o, nodes, idle)) for o in placements if o.strategy.nodes > 1]
    return max(gangs, key=lambda gang: sum(node.name in idle for node in gang), default=())


def _companions(placement: Placement, nodes: Mapping[str, Node], idle: Collection[str]) -> tuple[Node, ...]:
    """The lead's companions, idle nodes first."""
    lead, size = nodes[placement.lead], placement.strategy.nodes
    alike = [node for node in nodes.values() if kind_of(node) == kind_of(lead)]
    untried = [node for node in alike if node.name not in placement.failed]
    pool = untried if len(untried) >= size else alike
    on_host = [node for node in pool if node.host == lead.host]
    pool = on_host if len(on_host) >= size else pool
    rest = [node for node in pool if node.name != lead.name]
    rest.sort(key=lambda node: (node.name not in idle, node.host != lead.host, node.host, node.name))
    return tuple(rest[: size - 1])
