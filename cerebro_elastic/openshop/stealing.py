"""The target rule: with replicas, a node with nothing left of its own takes over a unit of another node."""

from __future__ import annotations

from math import inf

from cerebro_elastic.openshop.rules import Rule
from cerebro_elastic.openshop.state import DispatchState


def steal(state: DispatchState, n: int, rule: Rule) -> tuple[int, int] | None:
    """Take over a unit for node ``n`` that it can do in time.

    The most loaded node gives first. Units on partitions that ``n`` holds come before those that it would
    fetch. The unit's config is idle no longer.

    Returns:
        The unit's config and partition; ``None`` if no node has a unit for ``n``.
    """
    owners = sorted(range(len(state.load)), key=lambda a: -(inf if a in state.away else state.load[a]))
    for partitions in (state.replicas[n], state.tables.fetchable & ~state.replicas[n]):
        for a in owners if partitions else ():
            if a != n and (unit := _unit_of(state, a, n, partitions)) is not None:
                rule.remove(unit[0])
                state.hand_over(*unit, n)
                return unit
    return None


def _unit_of(state: DispatchState, a: int, n: int, partitions: int) -> tuple[int, int] | None:
    """A unit of node ``a`` on one of ``partitions`` that node ``n`` could do in time, and sooner than
    ``a``."""
    seconds, least = state.tables.seconds, state.tables.least
    before = inf if a in state.away else state.load[a]
    partitions &= state.replicas[a] | state.tables.fetchable
    configs = state.open_configs[a] & state.idle_configs if partitions and before > state.load[n] else 0
    while configs:
        i = (configs & -configs).bit_length() - 1
        configs &= configs - 1
        mask = state.owned[a][i] & partitions
        while mask:
            j = (mask & -mask).bit_length() - 1
            mask &= mask - 1
            cost = seconds[i][j][n] + (0.0 if state.replicas[n] >> j & 1 else state.tables.fetch[j])
            end = state.time + cost + state.fastest[i] - least[i][j]
            if end <= state.horizon and state.load[n] + cost < before:
                return i, j
    return None
