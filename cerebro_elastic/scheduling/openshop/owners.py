"""The holder of a partition that does its units, if nothing else decides."""

from __future__ import annotations

from collections.abc import Sequence

from cerebro_elastic.scheduling.openshop.state import DispatchState

Owners = list[list[int]]
"""By config and partition: the node."""


def only_holders(state: DispatchState) -> Owners:
    """The first holder of each partition, one that is present if possible: without replicas it is the only
    one.

    A partition that no node holds goes to the first node that is present, which fetches it.
    """
    nodes = range(len(state.replicas))
    first_present = next((n for n in nodes if n not in state.away), 0)
    homes = []
    for j in range(len(state.tables.fetch)):
        holders = [n for n in nodes if state.replicas[n] >> j & 1]
        present = [n for n in holders if n not in state.away]
        homes.append([*present, *holders, first_present][0])
    return [homes[:] for _ in state.undone]


def lightest(state: DispatchState, ready: Sequence[float], like: Owners) -> Owners:
    """Owners without the linear program: the longest unit first, each to the holder that is then done
    first."""
    owners = [row[:] for row in like]
    load, seconds = list(ready), state.tables.seconds
    units = [(i, j) for i in range(len(owners)) for j in range(len(owners[i])) if state.passes(i, j)]
    for i, j in sorted(units, key=lambda u: -state.tables.least[u[0]][u[1]] * state.passes(*u)):
        n = min(takers(state, j), key=lambda n: load[n] + seconds[i][j][n], default=owners[i][j])
        owners[i][j] = n
        load[n] += state.passes(i, j) * seconds[i][j][n]
    return owners


def takers(state: DispatchState, j: int) -> list[int]:
    """The present nodes that hold the partition; if none does, those that can fetch it. (The dispatcher lets
    a node with nothing else to do fetch more.)"""
    present = [n for n in range(len(state.replicas)) if n not in state.away]
    holders = [n for n in present if state.replicas[n] >> j & 1]
    return holders or (present if state.tables.fetchable >> j & 1 else [])
