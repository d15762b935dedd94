"""Which node is the home of which partition: balanced, and with as little moved as can be."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from cerebro_elastic.core.values import Node


def rebalance(
    homes: Mapping[int, str], nodes: Sequence[Node], held: Mapping[str, Collection[int]], partitions: int
) -> dict[int, str]:
    """New homes for partitions ``0 .. partitions - 1`` on ``nodes``, whose numbers of partitions
    differ by at most one.

    A partition keeps its home as long as that node is there and has room; else it goes to a node
    that holds it already (``held``: by node, what its cache has), else to the least loaded one.
    """
    if not nodes:
        return {}
    names = [n.name for n in nodes]
    kept: dict[str, list[int]] = {name: [] for name in names}
    for j in range(partitions):
        if homes.get(j) in kept:
            kept[homes[j]].append(j)
    room = _quotas(kept, partitions)
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


def _quotas(kept: Mapping[str, Sequence[int]], partitions: int) -> dict[str, int]:
    """How many partitions each node gets; the odd ones stay with those that have most."""
    share, odd = divmod(partitions, len(kept))
    by_load = sorted(kept, key=lambda name: -len(kept[name]))
    return {name: share + (place < odd) for place, name in enumerate(by_load)}
