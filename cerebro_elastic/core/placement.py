"""Which node is the home of which partition: as the nodes' speeds ask, and with as little moved as can be."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from cerebro_elastic.core.values import Node


def rebalance(
    homes: Mapping[int, str],
    nodes: Sequence[Node],
    held: Mapping[str, Collection[int]],
    partitions: int,
    paces: Mapping[str, float],
) -> dict[int, str]:
    """New homes for partitions ``0 .. partitions - 1`` on ``nodes``, such that the node that takes longest
    for all of its own is done as early as can be; ``paces`` has the nodes' seconds for one.

    A partition keeps its home as long as that node is there and has room; else it goes to a node
    that holds it already (``held``: by node, what its cache has), else to the one with most room.
    """
    if not nodes:
        return {}
    names = [n.name for n in nodes]
    kept: dict[str, list[int]] = {name: [] for name in names}
    for j in range(partitions):
        if homes.get(j) in kept:
            kept[homes[j]].append(j)
    room = _shares(kept, partitions, paces)
    placed: dict[int, str] = {}
    for name in names:
        # Of too many, the node gives away what it does not hold yet.
        kept[name].sort(key=lambda j, name=name: (j not in held.get(name, ()), j))  # type: ignore[misc]
        for j in kept[name][: room[name]]:
            placed[j] = name
            room[name] -= 1
    for j in (j for j in range(partitions) if j not in placed):
        home = min(
            (n for n in names if room[n] > 0),
            key=lambda n: (j not in held.get(n, ()), -room[n], names.index(n)),
        )
        placed[j] = home
        room[home] -= 1
    return dict(sorted(placed.items()))


def _shares(kept: Mapping[str, Sequence[int]], partitions: int, paces: Mapping[str, float]) -> dict[str, int]:
    """How many partitions each node gets: one after the other goes to who would be done with it first, which
    for jobs of one length gives the shortest makespan. Ties go to those that have most."""
    shares = dict.fromkeys(sorted(kept, key=lambda name: -len(kept[name])), 0)
    for _ in range(partitions):
        soonest = min(shares, key=lambda name: (shares[name] + 1) * paces[name])
        shares[soonest] += 1
    return shares
