"""Gangs: which nodes do a unit together, and for whom idle nodes are held back.

A gang has nodes of one kind. They are on the lead's host if enough of that kind are there, else on any;
those on which the unit has failed take part only if there are not enough others.

Nodes become idle one by one, and who needs one would always come before who needs two. So nodes are held
back by this rule: *if all that runs was assigned after a config came to wait for a gang, idle nodes are held
for that config*, for the one that has waited longest if there are several, and only those of the gang that
lacks fewest. It needs no memory: a config waits since its revision, what runs was assigned at its token.

No gang starves: what runs ends (no unit is preempted, and each ends), what follows it is newer, and when all
is newer nothing else gets the nodes that it needs. Nothing deadlocks: nodes are held for one config at a
time, and only while something runs; it ends, and its nodes are idle. And no other config starves: when a
gang has committed it waits from then on, behind all that runs, and where nothing runs the policy decides.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from cerebro_elastic.core.offers import Offer, Offers
from cerebro_elastic.core.state import State
from cerebro_elastic.core.values import Node


def companions(offer: Offer, nodes: Mapping[str, Node], idle: Collection[str]) -> tuple[Node, ...] | None:
    """The other nodes of the gang, in the order of their ranks; ``None`` if too few of them are idle."""
    team = _team(offer, nodes, idle) if offer.choice.nodes > 1 else ()
    return team if all(node.name in idle for node in team) else None


def overdue(state: State, offers: Offers) -> str | None:
    """The config that idle nodes are held for, if there is one: everything that runs has passed it over."""
    running = state.underway()
    oldest = min((attempt.token for attempt in running), default=0)
    busy = {attempt.unit.config for attempt in running}
    passed = [
        (state.configs[name].revision, name)
        for name, some in offers.items()
        if name not in busy
        and state.configs[name].revision < oldest
        and any(offer.choice.nodes > 1 for offer in some)
    ]
    return min(passed)[1] if passed else None


def held(offers: Sequence[Offer], nodes: Mapping[str, Node], idle: Collection[str]) -> set[str]:
    """The idle nodes of the gang that lacks fewest."""
    gangs = [
        {node.name for node in (offer.lead, *_team(offer, nodes, idle))}
        for offer in offers
        if offer.choice.nodes > 1
    ]
    return max((gang & set(idle) for gang in gangs), key=len, default=set())


def _team(offer: Offer, nodes: Mapping[str, Node], idle: Collection[str]) -> tuple[Node, ...]:
    """The lead's companions, idle ones rather than busy ones."""
    lead, size = offer.lead, offer.choice.nodes
    alike = [node for node in nodes.values() if node.hardware == lead.hardware]
    fresh = [node for node in alike if node.name not in offer.failed]
    pool = fresh if len(fresh) >= size else alike
    near = [node for node in pool if node.host == lead.host]
    pool = near if len(near) >= size else pool
    others = [node for node in pool if node.name != lead.name]
    others.sort(key=lambda node: (node.name not in idle, node.host != lead.host, node.host, node.name))
    return tuple(others[: size - 1])
