"""The remaining work of a live run as a dispatch state, to be played forward from the present moment."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cerebro_elastic.core.model.interfaces import RemainingWork
from cerebro_elastic.scheduling.openshop.dispatch import Dispatch
from cerebro_elastic.scheduling.openshop.instances import Instance
from cerebro_elastic.scheduling.openshop.owners import lightest, only_holders
from cerebro_elastic.scheduling.openshop.rules import Rule
from cerebro_elastic.scheduling.openshop.state import DispatchState, ScheduledUnit


def instance_of(left: RemainingWork) -> Instance:
    """The remaining work as an instance.

    Configs and nodes are numbered in the order in which ``left`` has them. Their present epochs are taken
    to be whole.
    """
    configs, partitions = len(left.configs), len(left.holders)
    # Made directly: an instance that users give is checked, which takes longer than a dry run.
    return Instance(
        durations=np.array([left.seconds[config] for config in left.configs]),
        availability=np.array([[name in holders for holders in left.holders] for name in left.nodes]),
        sizes=np.ones(partitions),
        epochs=np.array([left.later[config] + 1 for config in left.configs]),
        hop=np.zeros(configs),
        fetch=np.full(partitions, left.fetch),
        node_ready=np.array(list(left.nodes.values()), dtype=float),
        config_ready=np.array(list(left.configs.values()), dtype=float),
    )


def present_state(problem: Instance, left: RemainingWork) -> DispatchState:
    """The state of ``problem`` (see ``instance_of``) in which the units are undone that ``left`` has."""
    state = DispatchState.at_start(problem)
    for i, config in enumerate(left.configs):
        least, undone = state.tables.least[i], left.undone[config]
        state.undone[i] = sum(1 << j for j in undone)
        state.fastest[i] = sum(least[j] for j in undone) + state.later[i] * sum(least)
    return state


def give_owners(state: DispatchState, left: RemainingWork) -> None:
    """Give every unit an owner, such that loads are even.

    The linear program's answer would be better, but late. Nodes may take over units on other partitions that
    they have in their caches.
    """
    holders = only_holders(state)
    ready = [0.0] * len(state.replicas)
    for at, n, _ in state.events:
        if n >= 0:
            ready[n] = at
    state.assign(lightest(state, ready, holders) if state.tables.replicated else holders)
    for n, name in enumerate(left.nodes):
        for j in left.cached.get(name, ()):
            state.replicas[n] |= 1 << j
            state.tables.replicated = True


def first_visits(state: DispatchState, rule: Rule) -> list[ScheduledUnit]:
    """The units that begin now by ``rule``, each node and each config once. The state is of no further
    use."""
    visits: list[ScheduledUnit] = []
    Dispatch(state, rule, record=visits.append).play(until=state.time)
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


def least_end(state: DispatchState, ends: Sequence[float]) -> float:
    """The time before which the run cannot end, if no node and no config waits any more (seconds).

    Args:
        state: The moment from which on nothing waits.
        ends: The ends of the units so far.
    """
    nodes, configs = [state.time] * len(state.load), [state.time] * len(state.remaining)
    for at, n, i in state.events:
        if n >= 0:
            nodes[n] = at
        if i >= 0:
            configs[i] = at
    loaded = [at + load for at, load in zip(nodes, state.load, strict=True) if load > 0]
    resting = [at + left for at, left in zip(configs, state.remaining, strict=True) if left > 0]
    return max([*loaded, *resting, *ends], default=0.0)
