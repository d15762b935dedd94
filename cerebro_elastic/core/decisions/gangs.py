"""Which nodes form a gang, for which config are idle nodes held back, and what does an idle config wait for?

A gang consists of nodes of one kind: the same hardware and number of ranks. They are on the lead's host if
that has enough of them. Nodes on which the unit has failed take part only if too few others exist.

Nodes become idle one by one, so a config that needs one node would always come before a config that needs
two. Hence this rule. A config that waits for a gang is overdue when, since it began to wait, as many configs
that need fewer nodes have continued as the run has nodes (or as such configs exist, if fewer). Idle nodes are
held back for the overdue config that has waited longest: only the nodes of the gang that lacks the fewest.
The rule needs no memory: a config waits since its revision, and has continued at its revision or at the token
of its attempt.

- No gang starves: each unit that others get brings the moment nearer. Then the running units end, and no
  other config gets the needed nodes.
- Nothing deadlocks: nodes are held back for one config at a time. If nothing runs, all nodes are idle, so its
  gang is complete.
- No single-node config starves: after a commit the gang's config waits again, behind all others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from cerebro_elastic.core.decisions.moment import Moment
from cerebro_elastic.core.decisions.next_steps import kind_of, refusals
from cerebro_elastic.core.decisions.placements import Placement
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Strategy
from cerebro_elastic.system.words import counted


@dataclass(frozen=True, slots=True)
class Wait:
    """The thing that a config waits for."""

    nodes: tuple[str, ...] = ()
    """The nodes of its gang, which must be idle together."""
    lacks: str | None = None
    """The missing hardware, in words; ``None`` if nodes exist that can train it."""


def companions(
    placement: Placement, nodes: Mapping[str, Node], idle: Collection[str]
) -> tuple[Node, ...] | None:
    """The gang's nodes besides the lead, in the order of their ranks; ``None`` if too few of them are
    idle."""
    companion_nodes = _companions(placement, nodes, idle) if placement.strategy.nodes > 1 else ()
    return companion_nodes if all(node.name in idle for node in companion_nodes) else None


def overdue(moment: Moment) -> str | None:
    """The config for which idle nodes are held back, if any."""
    if not moment.has_gangs:
        return None
    needs = {name: options.most_nodes for name, options in moment.placements.items() if options}
    if all(need == 1 for need in needs.values()):
        return None
    busy, configs = moment.busy, moment.state.configs
    gone_on = {name: max(configs[name].revision, busy[name].token if name in busy else 0) for name in needs}
    longest_waiting: dict[int, tuple[int, str]] = {}
    for name, need in needs.items():
        if need > 1 and name not in busy:
            waiting = gone_on[name], name
            longest_waiting[need] = min(longest_waiting.get(need, waiting), waiting)
    passed_over = []
    for need, (last, name) in longest_waiting.items():
        rivals = [at for other, at in gone_on.items() if needs[other] < need]
        if rivals and sum(at > last for at in rivals) >= min(len(rivals), len(moment.nodes)):
            passed_over.append((last, name))
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


def waits(state: State, plan: Plan) -> dict[str, Wait]:
    """By live config outside any attempt, once the run has its least number of nodes."""
    moment = Moment(state, plan)
    if all(strategy.ranks == 1 for strategy in plan.strategies) or moment.waits_for_nodes:
        return {}
    nodes = moment.nodes
    idle = [name for name in nodes if name not in state.attempts]
    waits_by_config = {}
    for name, options in moment.placements.items():
        if name in moment.busy:
            continue
        if not options:
            waits_by_config[name] = Wait(lacks=_lack(moment.live[name], nodes, state, plan))
        elif all(placement.strategy.nodes > 1 for placement in options.placements):
            gang = nearest(options.placements, nodes, idle)
            waits_by_config[name] = Wait(tuple(node.name for node in gang))
    return waits_by_config


def _lack(config: Config, nodes: Mapping[str, Node], state: State, plan: Plan) -> str:
    """The needs of the least demanding possible strategy, and the existing nodes."""
    kinds = {node.hardware for node in nodes.values()}
    refused = [refusals(config, kind, state.profiles, plan) for kind in kinds]
    possible = [c for c in plan.strategies if not refused or any(c not in reasons for reasons in refused)]
    least = min(possible or plan.strategies, key=lambda strategy: (strategy.nodes, strategy.ranks))
    node_counts = Counter(map(kind_of, nodes.values()))
    present = ", ".join(
        f"{count} {hardware} of {counted(ranks, 'rank')}"
        for (hardware, ranks), count in sorted(node_counts.items())
    )
    return f"{least} takes {_nodes(least)}; there are: {present or 'none'}"


def _nodes(strategy: Strategy) -> str:
    ranks = counted(-(-strategy.ranks // strategy.nodes), "rank")
    return (
        f"a node of {ranks}"
        if strategy.nodes == 1
        else f"{strategy.nodes} nodes of one kind with {ranks} each"
    )
