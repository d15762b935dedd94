"""On how many nodes is each config trained? A forecast decides.

A gang of n nodes ends one unit sooner than a single node, but seldom n times as fast, so it costs more node
time. Gangs are therefore useful only where nodes would be idle otherwise: when configs are fewer than nodes
(paper, section 5.7, forms them once configs are at most half as many), or when the longest config would go on
long after all others.

The forecast: a run ends no sooner than its longest config, and no sooner than its nodes have done all the
work. The sizes shall make the later of the two early. At first every config takes the size that costs the
least node time. Then, for the shortest horizon for which that is possible, configs that would exceed the
horizon get more nodes. (This is the heuristic of the joint problem in ``openshop``, with a kind of nodes as
one node of many devices.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

NodeKind: TypeAlias = tuple[str, int]
"""The hardware of nodes, and the number of ranks of each."""
GangSeconds: TypeAlias = Mapping[NodeKind, Mapping[int, float]]
"""A config's remaining work: by kind of nodes and size of the gang, the seconds that it takes."""
GangSizes: TypeAlias = Mapping[NodeKind, int]
"""The size of a config's gang on each kind of nodes."""

WORTH = 0.9
"""Gangs are used if they shorten the forecast to this part of it: nodes of a gang wait for one another, and
fetch partitions that are not at home on them."""
EXACT = 0.01
"""The relative accuracy of the horizon."""


def gang_sizes(work: Mapping[str, GangSeconds], nodes: Mapping[NodeKind, int]) -> dict[str, GangSizes]:
    """The sizes of each config's gangs.

    Args:
        work: By config: its remaining work.
        nodes: The number of nodes of each kind.
    """
    thrifty = {name: _thriftiest(config_work) for name, config_work in work.items()}
    without_gangs = _forecast(work, thrifty, nodes)
    low = max(
        max(_loads(work, thrifty, nodes).values(), default=0.0),
        max(
            (sum(min(by_size.values()) for by_size in config_work.values()) for config_work in work.values()),
            default=0.0,
        ),
    )
    best, high = thrifty, WORTH * without_gangs
    while high - low > EXACT * high:
        # The first horizon checks whether gangs are worthwhile at all.
        horizon = high if best is thrifty else (low + high) / 2
        sizes_within = {
            name: _within(horizon, config_work, thrifty[name], nodes) for name, config_work in work.items()
        }
        if _forecast(work, sizes_within, nodes) <= horizon:
            best, high = sizes_within, horizon
        elif best is thrifty:
            break
        else:
            low = horizon
    return best


def _thriftiest(config_work: GangSeconds) -> GangSizes:
    """The sizes that cost the least node time; the smallest of equals."""
    return {kind: min(by_size, key=lambda n: (n * by_size[n], n)) for kind, by_size in config_work.items()}


def _within(
    horizon: float, config_work: GangSeconds, sizes: GangSizes, nodes: Mapping[NodeKind, int]
) -> GangSizes:
    """``sizes``, enlarged until the config ends within the horizon, if it can. Each step takes the size that
    costs the least node time per second saved."""
    while _length(config_work, sizes) > horizon:
        changes = [
            ((n * by_size[n] - sizes[kind] * by_size[sizes[kind]]) / nodes[kind] / saved, kind, n)
            for kind, by_size in config_work.items()
            for n in by_size
            if n > sizes[kind] and (saved := by_size[sizes[kind]] - by_size[n]) > 0
        ]
        if not changes:
            break
        _, kind, n = min(changes)
        sizes = {**sizes, kind: n}
    return sizes


def _forecast(
    work: Mapping[str, GangSeconds], sizes: Mapping[str, GangSizes], nodes: Mapping[NodeKind, int]
) -> float:
    lengths = (_length(config_work, sizes[name]) for name, config_work in work.items())
    return max(*_loads(work, sizes, nodes).values(), *lengths, 0.0, 0.0)


def _length(config_work: GangSeconds, sizes: GangSizes) -> float:
    return sum(by_size[sizes[kind]] for kind, by_size in config_work.items())


def _loads(
    work: Mapping[str, GangSeconds], sizes: Mapping[str, GangSizes], nodes: Mapping[NodeKind, int]
) -> dict[NodeKind, float]:
    """By kind: the seconds of its nodes, if they share all work evenly."""
    loads = dict.fromkeys(nodes, 0.0)
    for name, config_work in work.items():
        for kind, by_size in config_work.items():
            size = sizes[name][kind]
            loads[kind] += size * by_size[size] / nodes[kind]
    return loads
