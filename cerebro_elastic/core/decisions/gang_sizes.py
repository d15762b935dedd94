"""On how many nodes each config is trained: on one, or together on several, by a forecast.

Several nodes bring one unit to its end sooner, and together they take longer for it, as speed-up is seldom
linear. So gangs are of use only where nodes would else be idle: when configs are fewer than nodes (paper,
section 5.7, which does so once they are at most half as many), or when the longest would be trained for long
after all the others. Whether it is so a forecast tells: a run ends no sooner than its longest config, nor
than its nodes have done all there is. Sizes are chosen such that the later of the two is early: first all are
the thriftiest, then for the shortest horizon for which that can be, configs that are too long for it get more
nodes. (That is the heuristic of the joint problem in ``schedulers``, with a kind of nodes as a node of many
devices, and its units as parts of one.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

Kind: TypeAlias = tuple[str, int]
"""Of nodes: their hardware, and the number of their ranks."""
Job: TypeAlias = Mapping[Kind, Mapping[int, float]]
"""What a config has left to do: by kind of nodes the seconds on a gang of so many of them."""
Sizes: TypeAlias = Mapping[Kind, int]

WORTH = 0.9
"""As which share of the forecast without gangs the one with gangs counts as shorter: nodes wait for one
another, and fetch partitions that are not at home on them."""
EXACT = 0.01
"""Up to which share the horizon is looked for."""


def gang_sizes(jobs: Mapping[str, Job], nodes: Mapping[Kind, int]) -> dict[str, Sizes]:
    """By config and kind of nodes, of which there are so many: the number of nodes that train it."""
    thrifty = {name: _thriftiest(job) for name, job in jobs.items()}
    usual = _forecast(jobs, thrifty, nodes)
    low = max(
        max(_loads(jobs, thrifty, nodes).values(), default=0.0),
        max((sum(min(by_size.values()) for by_size in job.values()) for job in jobs.values()), default=0.0),
    )
    best, high = thrifty, WORTH * usual
    while high - low > EXACT * high:
        # First whether it is worth anything at all.
        horizon = high if best is thrifty else (low + high) / 2
        found = {name: _within(horizon, job, thrifty[name], nodes) for name, job in jobs.items()}
        if _forecast(jobs, found, nodes) <= horizon:
            best, high = found, horizon
        elif best is thrifty:
            break
        else:
            low = horizon
    return best


def _thriftiest(job: Job) -> Sizes:
    """Those that take the least time of nodes, of equals the smallest."""
    return {kind: min(by_size, key=lambda n: (n * by_size[n], n)) for kind, by_size in job.items()}


def _within(horizon: float, job: Job, sizes: Sizes, nodes: Mapping[Kind, int]) -> Sizes:
    """Larger ones for a config that would be longer than the horizon: each time those that cost least of
    nodes' time for each second saved."""
    while _length(job, sizes) > horizon:
        changes = [
            ((n * by_size[n] - sizes[kind] * by_size[sizes[kind]]) / nodes[kind] / saved, kind, n)
            for kind, by_size in job.items()
            for n in by_size
            if n > sizes[kind] and (saved := by_size[sizes[kind]] - by_size[n]) > 0
        ]
        if not changes:
            break
        _, kind, n = min(changes)
        sizes = {**sizes, kind: n}
    return sizes


def _forecast(jobs: Mapping[str, Job], sizes: Mapping[str, Sizes], nodes: Mapping[Kind, int]) -> float:
    lengths = (_length(job, sizes[name]) for name, job in jobs.items())
    return max(*_loads(jobs, sizes, nodes).values(), *lengths, 0.0, 0.0)


def _length(job: Job, sizes: Sizes) -> float:
    return sum(by_size[sizes[kind]] for kind, by_size in job.items())


def _loads(
    jobs: Mapping[str, Job], sizes: Mapping[str, Sizes], nodes: Mapping[Kind, int]
) -> dict[Kind, float]:
    """Seconds of each kind's nodes, if they share their work evenly."""
    loads = dict.fromkeys(nodes, 0.0)
    for name, job in jobs.items():
        for kind, by_size in job.items():
            size = sizes[name][kind]
            loads[kind] += size * by_size[size] / nodes[kind]
    return loads
