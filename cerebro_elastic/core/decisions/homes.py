"""On which nodes is each partition at home?

Each partition has as many home nodes as it has replicas, on different hosts where that is possible: the nodes
of one host share a cache and fail together. A node's speed determines the number of its partitions. The
choice among them is free, so the assignment moves as few as it can.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

from cerebro_elastic.core.model.nodes import Node

Homes: TypeAlias = Mapping[int, tuple[str, ...]]
"""By partition: its home nodes."""


def rebalance(
    homes: Homes,
    nodes: Sequence[Node],
    cached: Mapping[str, Collection[int]],
    partitions: int,
    speed_factors: Mapping[str, float],
    replicas: int = 1,
) -> dict[int, tuple[str, ...]]:
    """New homes such that the slowest node is done with its partitions as early as possible.

    A partition stays at home on a node that is in use and has room. Otherwise it goes to a node that has it
    cached, else to the one with most room, and of these to the one that shares the fewest partitions with its
    other homes: if a node leaves, many nodes then share its work.

    Args:
        cached: By node: the partitions in its cache.
        partitions: Partitions are numbered ``0 .. partitions - 1``.
        speed_factors: By node: its seconds for one partition, compared with other nodes.
        replicas: The number of nodes at which each partition is at home; all, if fewer.
    """
    if not nodes:
        return {}
    placing = _Placing(homes, nodes, cached, partitions, min(replicas, len(nodes)))
    placing.keep(speed_factors)
    short = [j for j in range(partitions) if not placing.fill(j)]
    for j in short:
        placing.fill_by_moving(j)
    return {j: tuple(n.name for n in nodes if j in placing.has[n.name]) for j in range(partitions)}


class _Placing:
    """Homes during the assignment: the partitions that each node ``has``, and its ``room`` for more."""

    def __init__(
        self,
        homes: Homes,
        nodes: Sequence[Node],
        cached: Mapping[str, Collection[int]],
        partitions: int,
        replicas: int,
    ) -> None:
        self.replicas = replicas
        self.hosts = {node.name: node.host for node in nodes}
        self.cached = {name: frozenset(cached.get(name, ())) for name in self.hosts}
        self.had: dict[str, list[int]] = {name: [] for name in self.hosts}
        for j in range(partitions):
            for name in [name for name in homes.get(j, ()) if name in self.had][:replicas]:
                self.had[name].append(j)
        self.has: dict[str, set[int]] = {name: set() for name in self.hosts}
        self.at: list[list[str]] = [[] for _ in range(partitions)]
        self.room: dict[str, int] = {}

    def keep(self, speed_factors: Mapping[str, float]) -> None:
        """Partitions stay at home, up to the node's share. A node with too many gives away uncached ones, and
        those with other homes."""
        self.room = _shares(self.had, len(self.at), self.replicas, speed_factors)
        for name, had in self.had.items():
            best = sorted(had, key=lambda j, name=name: (j not in self.cached[name], len(self.at[j]), j))  # type: ignore[misc]
            for j in best[: self.room[name]]:
                self._give(j, name)

    def fill(self, j: int) -> bool:
        """Give the partition homes on nodes with room; returns whether it got all its homes."""
        while len(self.at[j]) < self.replicas:
            free = [name for name, room in self.room.items() if room and j not in self.has[name]]
            if not free:
                return False
            self._give(j, min(free, key=self._preference(j)))
        return True

    def fill_by_moving(self, j: int) -> None:
        """All nodes with room have partition ``j``: one of them takes another partition from a node without
        ``j``, and that node takes ``j``. (Such a partition exists: it has more homes than ``j``.)"""
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
        return j not in self.cached[name] and j not in self.had[name]

    def _preference(self, j: int) -> Callable[[str], tuple[bool, bool, int, int]]:
        """A sort key for nodes: the lowest is the best home for ``j``."""
        near = {self.hosts[other] for other in self.at[j]}

        def key(name: str) -> tuple[bool, bool, int, int]:
            common = sum(len(self.has[name] & self.has[other]) for other in self.at[j])
            return self.hosts[name] in near, j not in self.cached[name], -self.room[name], common

        return key


def _shares(
    kept: Mapping[str, Sequence[int]], partitions: int, replicas: int, speed_factors: Mapping[str, float]
) -> dict[str, int]:
    """The number of each node's partitions. Each partition goes to the node that would be done with it first:
    this gives the shortest makespan for jobs of one length. No node gets more than all partitions. Ties go to
    nodes that keep their number."""
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
