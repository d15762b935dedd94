"""A live moment as a shop: the rest of the run, to be played forward from there."""

from __future__ import annotations

from collections.abc import Sequence

from cerebro_elastic.core.model.interfaces import RemainingWork
from cerebro_elastic.openshop.dispatch import DispatchState, Rule, ScheduledUnit, Tables
from cerebro_elastic.openshop.instances import Instance, instance
from cerebro_elastic.openshop.owners import lightest, only_holders


def problem_of(left: RemainingWork) -> Instance:
    """What is left as an instance: configs and nodes are numbered in the order in which ``left`` has them,
    and their present epochs are taken to be whole."""
    return instance(
        [left.seconds[config] for config in left.configs],
        [[name in holders for holders in left.holders] for name in left.nodes],
        epochs=[left.later[config] + 1 for config in left.configs],
        fetch=left.fetch,
        node_ready=list(left.nodes.values()),
        config_ready=list(left.configs.values()),
    )


def present(problem: Instance, left: RemainingWork) -> DispatchState:
    """The shop of ``problem`` in the state that ``left`` tells."""
    shop = DispatchState(Tables(problem))
    for i, config in enumerate(left.configs):
        least, undone = shop.tables.least[i], left.undone[config]
        shop.undone[i] = sum(1 << j for j in undone)
        shop.fastest[i] = sum(least[j] for j in undone) + shop.later[i] * sum(least)
    return shop


def give_owners(shop: DispatchState, left: RemainingWork) -> None:
    """A node for every unit, by the number of them alone: the linear program's answer would be better, and
    late. On what else they have in their caches nodes may take units over."""
    homes = only_holders(shop)
    ready = [0.0] * len(shop.held)
    for at, n, _ in shop.events:
        if n >= 0:
            ready[n] = at
    shop.assign(lightest(shop, ready, homes) if shop.tables.spare else homes)
    for n, name in enumerate(left.nodes):
        for j in left.cached.get(name, ()):
            shop.held[n] |= 1 << j
            shop.tables.spare = True


def first_visits(shop: DispatchState, rule: Rule) -> list[ScheduledUnit]:
    """Who begins what now, by ``rule``: each node and each config once. The shop is of no further use."""
    visits: list[ScheduledUnit] = []
    shop.run(rule, until=shop.time, record=visits.append)
    nodes: set[int] = set()
    configs: set[int] = set()
    first = []
    for visit in visits:
        # Units that take no time would be over already, and others begun.
        if visit.node not in nodes and visit.config not in configs:
            first.append(visit)
            nodes.add(visit.node)
            configs.add(visit.config)
    return first


def least_end(shop: DispatchState, ends: Sequence[float]) -> float:
    """The time before which the run cannot end, if nobody waits any more; ``ends`` are those of the visits so
    far."""
    nodes, configs = [shop.time] * len(shop.load), [shop.time] * len(shop.rest)
    for at, n, i in shop.events:
        if n >= 0:
            nodes[n] = at
        if i >= 0:
            configs[i] = at
    loaded = [at + load for at, load in zip(nodes, shop.load, strict=True) if load > 0]
    resting = [at + rest for at, rest in zip(configs, shop.rest, strict=True) if rest > 0]
    return max([*loaded, *resting, *ends], default=0.0)
