"""Which nodes are the homes of which partition: as the nodes' speeds ask, and with little moved.

Each partition is at home on so many nodes (its replicas), on different hosts where it can be, since the nodes
of one host share a cache and are lost together. A node's share is a number of partitions; which ones is free,
but for what it has already.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

from cerebro_elastic.core.model.nodes import Node

Homes: TypeAlias = Mapping[int, tuple[str, ...]]
"""By partition: the nodes that it is at home on."""


def rebalance(
    homes: Homes,
    nodes: Sequence[Node],
    held: Mapping[str, Collection[int]],
    partitions: int,
    speed_factors: Mapping[str, float],
    replicas: int = 1,
) -> dict[int, tuple[str, ...]]:
    """New homes for partitions ``0 .. partitions - 1``, each on ``replicas`` different ``nodes`` (on all, if
    there are fewer), such that the node that takes longest for all of its own is done as early as can be;
    ``speed_factors`` has the nodes' seconds for one.

    A partition stays at home on a node as long as that is there and has room; else it goes to a node
    that holds it already (``held``: by node, what its cache has), else to the one with most room, of these to
    the one that has least in common with its other homes: what one node leaves behind is then shared by many.
    """
    if not nodes:
        return {}
    placing = _Placing(homes, nodes, held, partitions, min(replicas, len(nodes)))
    placing.keep(speed_factors)
    short = [j for j in range(partitions) if not placing.fill(j)]
    for j in short:
        placing.fill_by_moving(j)
    return {j: tuple(n.name for n in nodes if j in placing.has[n.name]) for j in range(partitions)}


class _Placing:
    """A placement in the making: what each node ``has`` so far, and for how many more it has ``room``."""

    def __init__(
        self,
        homes: Homes,
        nodes: Sequence[Node],
        held: Mapping[str, Collection[int]],
        partitions: int,
        replicas: int,
    ) -> None:
        self.replicas = replicas
        self.hosts = {node.name: node.host for node in nodes}
        self.held = {name: frozenset(held.get(name, ())) for name in self.hosts}
        self.had: dict[str, list[int]] = {name: [] for name in self.hosts}
        for j in range(partitions):
            for name in [name for name in homes.get(j, ()) if name in self.had][:replicas]:
                self.had[name].append(j)
        self.has: dict[str, set[int]] = {name: set() for name in self.hosts}
        self.at: list[list[str]] = [[] for _ in range(partitions)]
        self.room: dict[str, int] = {}

    def keep(self, speed_factors: Mapping[str, float]) -> None:
        """What is at home somewhere stays there, up to the node's share. Of too many, it gives away what it
        does not hold yet, and what has other homes."""
        self.room = _shares(self.had, len(self.at), self.replicas, speed_factors)
        for name, had in self.had.items():
            best = sorted(had, key=lambda j, name=name: (j not in self.held[name], len(self.at[j]), j))  # type: ignore[misc]
            for j in best[: self.room[name]]:
                self._give(j, name)

    def fill(self, j: int) -> bool:
        """Give the partition homes; whether as many as it shall have were to be had."""
        while len(self.at[j]) < self.replicas:
            free = [name for name, room in self.room.items() if room and j not in self.has[name]]
            if not free:
                return False
            self._give(j, min(free, key=self._preference(j)))
        return True

    def fill_by_moving(self, j: int) -> None:
        """All nodes with room have the partition: one of them takes another one off a node that has not.
        (There is one to take: it has all its homes, more than ``j`` has without the taker.)"""
        while len(self.at[j]) < self.replicas:
            moves = [
                (self._fetches(k, taker) + self._fetches(j, giver), k, giver, taker)
                for taker, room in self.room.items()
                for k in range(len(self.at))
                if room and taker not in self.at[k]
                for giver in self.at[k]
                if j not in self.has[giver]
            ]
            _, k, giver, taker = min(moves)
            self.has[giver].remove(k)
            self.at[k].remove(giver)
            self.room[giver] += 1
            self._give(k, taker)
            self._give(j, giver)

    def _give(self, j: int, name: str) -> None:
        self.has[name].add(j)
        self.at[j].append(name)
        self.room[name] -= 1

    def _fetches(self, j: int, name: str) -> bool:
        return j not in self.held[name] and j not in self.had[name]

    def _preference(self, j: int) -> Callable[[str], tuple[bool, bool, int, int]]:
        """Lowest is best; of equals the first."""
        near = {self.hosts[other] for other in self.at[j]}

        def key(name: str) -> tuple[bool, bool, int, int]:
            common = sum(len(self.has[name] & self.has[other]) for other in self.at[j])
            return self.hosts[name] in near, j not in self.held[name], -self.room[name], common

        return key


def _shares(
    kept: Mapping[str, Sequence[int]], partitions: int, replicas: int, speed_factors: Mapping[str, float]
) -> dict[str, int]:
    """How many partitions each node gets: one after the other goes to who would be done with it first, which
    for jobs of one length gives the shortest makespan; no node has one twice. Ties go to those that have
    it."""
    shares = dict.fromkeys(kept, 0)

    def bid(name: str, at: int) -> tuple[float, bool, int, str]:
        return (shares[name] + 1) * speed_factors[name], shares[name] >= len(kept[name]), at, name

    bids = [bid(name, at) for at, name in enumerate(shares)]
    heapq.heapify(bids)
    for _ in range(partitions * replicas):
        _, _, at, name = heapq.heappop(bids)
        shares[name] += 1
        if shares[name] < partitions:
            heapq.heappush(bids, bid(name, at))
    return shares
