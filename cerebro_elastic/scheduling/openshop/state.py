"""The remaining work at a moment, and the planned node of each unit.

With replicas, each unit has an owner, its planned node (``assign``). Without owners (``share``) any holder of
the partition may take a unit (section 5.5 of the paper).

Configs, partitions and nodes are numbers: ``i``, ``j`` and ``n``. Sets of configs and of partitions are
bits of an int, because they are small, copied often, and intersected all the time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappush
from math import inf
from typing import Self, TypeVar

import numpy as np

from cerebro_elastic.scheduling.openshop.instances import Instance

T = TypeVar("T", int, float)
Seconds = list[list[list[float]]]
"""Seconds of units, by config, partition and node."""


@dataclass(slots=True)
class ScheduledUnit:
    """A unit on a node. Numbers begin at 0, times are seconds."""

    config: int
    epoch: int
    """The config's epoch that the unit belongs to."""
    partition: int
    node: int
    start: float
    end: float


class Tables:
    """Constants of a dispatch. All forks of a state share them."""

    def __init__(self, instance: Instance) -> None:
        seconds = instance.seconds()
        cost = seconds + np.where(instance.availability.T, 0.0, instance.fetch[:, None])
        self.instance = instance
        self.seconds: Seconds = seconds.tolist()
        """The expected seconds of each unit on each node, without hops and fetches."""
        self.least: list[list[float]] = np.where(instance.takers, cost, np.inf).min(axis=2).tolist()
        """By config and partition: the seconds on the fastest node that can do the unit."""
        self.hop: list[float] = instance.hop.tolist()
        """By config: the seconds that a hop adds."""
        self.fetch: list[float] = instance.fetch.tolist()
        """By partition: the seconds of a fetch; infinite where no node can fetch it."""
        self.every = (1 << instance.partitions) - 1
        """All partitions, as bits."""
        self.fetchable = _bits(np.isfinite(instance.fetch))
        """The partitions that nodes can fetch, as bits."""
        self.replicated = instance.replicated
        """Whether some unit has more than one node that could do it."""


@dataclass(slots=True, eq=False)
class DispatchState:
    """The rest of a problem at ``time``. Make one with ``at_start``, or ``fork`` another."""

    tables: Tables
    time: float
    undone: list[int]
    """By config: the partitions that are left in its present epoch, as bits."""
    later: list[int]
    """By config: how many whole epochs follow the present one."""
    epoch: list[int]
    """By config: the number of its present epoch."""
    last_node: list[int]
    """By config: the node of its last unit; -1 before the first one."""
    replicas: list[int]
    """By node: the partitions that it holds, as bits."""
    owned: list[list[int]]
    """By node and config: the partitions of ``undone`` that the node may take now, as bits."""
    open_configs: list[int]
    """By node: the configs of which it owns units, as bits."""
    load: list[float]
    """By node: the seconds of all its remaining work, later epochs included."""
    remaining: list[float]
    """By config: the seconds of all that is left of it, on the nodes that own it."""
    fastest: list[float]
    """By config: the seconds of all that is left of it, each unit on the fastest node."""
    events: list[tuple[float, int, int]]
    """A heap of (time, node, config): at that time the two are free; -1 stands for none."""
    running: dict[int, ScheduledUnit]
    """By node: the unit that it does now."""
    away: set[int]
    owner: list[list[int]]
    """By config and partition: the planned node of the present epoch's unit; empty if ``shared``."""
    planned_owner: list[list[int]]
    """By config and partition: the owner at the start of each epoch."""
    shared: bool = False
    """Whether every holder of a partition may take its units, so that units have no owners."""
    horizon: float = inf
    """By when a config must be able to end for another node to take over a unit of it, in seconds."""
    guard: float = -1.0
    """Configs with less slack than this before the horizon have nodes kept free (seconds); below 0: none."""
    idle_configs: int = 0
    """The configs that wait for a node, as bits; a dispatch keeps it."""

    @classmethod
    def at_start(cls, instance: Instance) -> Self:
        """The state of ``instance`` before the first unit."""
        tables, configs, nodes = Tables(instance), instance.configs, instance.nodes
        epochs = [int(count) for count in instance.epochs]
        events = [
            *((float(t), n, -1) for n, t in enumerate(instance.node_ready) if t > 0),
            *((float(t), -1, i) for i, t in enumerate(instance.config_ready) if t > 0),
        ]
        heapify(events)
        return cls(
            tables=tables,
            time=0.0,
            undone=[tables.every if count else 0 for count in epochs],
            later=[max(count - 1, 0) for count in epochs],
            epoch=[0] * configs,
            last_node=[-1] * configs,
            replicas=[_bits(row) for row in instance.availability],
            owned=[[0] * configs for _ in range(nodes)],
            open_configs=[0] * nodes,
            load=[0.0] * nodes,
            remaining=[0.0] * configs,
            fastest=[sum(row) * count for row, count in zip(tables.least, epochs, strict=True)],
            events=events,
            running={},
            away=set(),
            owner=[],
            planned_owner=[],
        )

    def fork(self) -> DispatchState:
        """A copy to try something out on. In it running units end as expected."""
        events = [event for event in self.events if event[1] == -1 or event[2] == -1]
        events += [(self.expected_end(visit), n, visit.config) for n, visit in self.running.items()]
        heapify(events)
        return replace(
            self,
            undone=self.undone.copy(),
            later=self.later.copy(),
            epoch=self.epoch.copy(),
            last_node=self.last_node.copy(),
            replicas=self.replicas.copy(),
            owned=[row.copy() for row in self.owned],
            open_configs=self.open_configs.copy(),
            load=self.load.copy(),
            remaining=self.remaining.copy(),
            fastest=self.fastest.copy(),
            events=events,
            running=self.running.copy(),
            away=self.away.copy(),
            owner=[row.copy() for row in self.owner],
        )

    # -- owners

    def assign(self, owner: Sequence[Sequence[int]]) -> None:
        """Config ``i``'s units on partition ``j`` are for node ``owner[i][j]``, in all its epochs."""
        self.shared = False
        self.planned_owner = [list(row) for row in owner]
        self.owner = [list(row) for row in owner]
        self._deal()

    def share(self) -> None:
        """Every unit is for whichever holder takes it first."""
        self.shared = True
        self._deal()

    def hand_over(self, i: int, j: int, n: int) -> None:
        """Config ``i``'s unit on partition ``j`` is for node ``n`` from now on."""
        before, seconds = self.owner[i][j], self.tables.seconds[i][j]
        self._disown(before, i, 1 << j)
        self.load[before] -= seconds[before]
        self._own(n, i, self.owned[n][i] | 1 << j)
        self.load[n] += seconds[n]
        self.remaining[i] += seconds[n] - seconds[before]
        self.owner[i][j] = n

    def _deal(self) -> None:
        nodes, configs = range(len(self.replicas)), range(len(self.undone))
        seconds = self.tables.seconds
        self.owned = [[0] * len(configs) for _ in nodes]
        self.open_configs = [0] * len(nodes)
        self.load = [0.0] * len(nodes)
        self.remaining = [0.0] * len(configs)
        for i in configs:
            self._deal_epoch(i)
            undone, later = self.undone[i], self.later[i]
            for j, by_node in enumerate(seconds[i]):
                times = (undone >> j & 1) + later
                takers = self._owners(i, j) if times else ()
                for n in takers:
                    self.load[n] += times * by_node[n] / len(takers)
                    self.remaining[i] += times * by_node[n] / len(takers)

    def passes(self, i: int, j: int) -> int:
        """How often config ``i`` is still to be trained on partition ``j``."""
        return (self.undone[i] >> j & 1) + self.later[i]

    def _owners(self, i: int, j: int) -> Sequence[int]:
        if not self.shared:
            return (self.owner[i][j],)
        return [n for n, bits in enumerate(self.replicas) if bits >> j & 1]

    def _deal_epoch(self, i: int) -> None:
        """Give out the units that the config has left in its present epoch."""
        undone = self.undone[i]
        if self.shared:
            for n, bits in enumerate(self.replicas):
                self._own(n, i, undone & bits)
            return
        masks: dict[int, int] = {}
        for j, n in enumerate(self.owner[i]):
            masks[n] = masks.get(n, 0) | (undone & 1 << j)
        for n, mask in masks.items():
            self._own(n, i, mask)

    def _own(self, n: int, i: int, mask: int) -> None:
        self.owned[n][i] = mask
        if mask:
            self.open_configs[n] |= 1 << i

    def _disown(self, n: int, i: int, bit: int) -> None:
        """The unit is no longer for the node."""
        mask = self.owned[n][i] & ~bit
        self.owned[n][i] = mask
        if not mask:
            self.open_configs[n] &= ~(1 << i)

    # -- the moment

    def free_nodes(self) -> list[int]:
        """The nodes that could take a unit now."""
        not_ready = {n for _, n, i in self.events if i == -1}
        busy = self.running.keys() | self.away | not_ready
        return [n for n in range(len(self.replicas)) if n not in busy]

    def waiting_configs(self) -> list[int]:
        """The configs that have something left and are in no unit."""
        busy = {v.config for v in self.running.values()} | {i for _, n, i in self.events if n == -1}
        return [i for i, mask in enumerate(self.undone) if mask and i not in busy]

    def ready(self, begin: float) -> tuple[list[float], list[float]]:
        """By node and by config: when it is free, as the events say; ``begin`` if they say nothing."""
        nodes, configs = [begin] * len(self.replicas), [begin] * len(self.undone)
        for at, n, i in self.events:
            if n >= 0:
                nodes[n] = at
            if i >= 0:
                configs[i] = at
        return nodes, configs

    def least_end(self, nodes: Sequence[float], configs: Sequence[float]) -> float:
        """When the last node and config are done that have anything left, if they are free at these times
        and never wait."""
        ends = [at + load for at, load in zip(nodes, self.load, strict=True) if load > 0]
        ends += [at + left for at, left in zip(configs, self.remaining, strict=True) if left > 0]
        return max(ends, default=0.0)

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return not self.running and not any(self.undone)

    def expected_end(self, visit: ScheduledUnit) -> float:
        """When a running unit is expected to end: not before now."""
        return max(self.time, visit.start + self.tables.seconds[visit.config][visit.partition][visit.node])

    # -- events

    def start(self, n: int, i: int, j: int, actual: Seconds) -> ScheduledUnit:
        """Node ``n`` begins config ``i``'s unit on partition ``j``.

        The unit will take its ``actual`` seconds, and those of a hop and a fetch where it needs them.
        """
        tables, now, bit = self.tables, self.time, 1 << j
        expected = tables.seconds[i][j]
        self.undone[i] &= ~bit
        self.idle_configs &= ~(1 << i)
        takers = self._owners(i, j)
        for m in takers:
            self._disown(m, i, bit)
            self.load[m] -= expected[m] / len(takers)
            self.remaining[i] -= expected[m] / len(takers)
        self.fastest[i] -= tables.least[i][j]
        seconds = actual[i][j][n]
        if self.last_node[i] not in (n, -1):
            seconds += tables.hop[i]
        if not self.replicas[n] & bit:
            seconds += tables.fetch[j]
            self.replicas[n] |= bit
        visit = ScheduledUnit(i, self.epoch[i], j, n, now, now + seconds)
        self.running[n] = visit
        heappush(self.events, (visit.end, n, i))
        return visit

    def begin_next_epoch(self, i: int) -> bool:
        """Begin the config's next epoch, if it has one."""
        if not self.later[i]:
            return False
        self.later[i] -= 1
        self.epoch[i] += 1
        self.undone[i] = self.tables.every
        if not self.shared:
            self.owner[i] = list(self.planned_owner[i])
        self._deal_epoch(i)
        return True

    def lose(self, node: int) -> ScheduledUnit | None:
        """The node is away from now on. Its unit must be done again, and is returned."""
        self.away.add(node)
        lost = self.running.pop(node, None)
        self.events = [event for event in self.events if event[1] != node]
        heapify(self.events)
        if lost is not None:
            i, j = lost.config, lost.partition
            self.undone[i] |= 1 << j
            self.fastest[i] += self.tables.least[i][j]
            self._deal()
        return lost

    def regain(self, node: int) -> None:
        """The node is back, with its partitions; it waits for its ``node_ready`` as before."""
        self.away.discard(node)
        if (ready := float(self.tables.instance.node_ready[node])) > self.time:
            heappush(self.events, (ready, node, -1))

    def extend(self, config: int, epochs: int) -> None:
        """The config trains for ``epochs`` more epochs."""
        self.later[config] += epochs
        self.fastest[config] += epochs * sum(self.tables.least[config])
        for j, seconds in enumerate(self.tables.seconds[config]):
            takers = self._owners(config, j) if self.shared else (self.planned_owner[config][j],)
            for n in takers:
                self.load[n] += epochs * seconds[n] / len(takers)
                self.remaining[config] += epochs * seconds[n] / len(takers)
        if not self.undone[config]:
            self.begin_next_epoch(config)


def _bits(flags: Sequence[bool] | np.ndarray) -> int:
    """The int that has the bits of the true places."""
    return sum(1 << place for place, flag in enumerate(flags) if flag)


def left_shifted(
    units: Iterable[tuple[int, int, int, T]], configs: Sequence[T], nodes: Sequence[Sequence[T]]
) -> Iterator[T]:
    """When each of ``units`` starts, if they are begun in this order, each as early as its config and its
    node's devices allow.

    Args:
        units: Config, node, how many of the node's devices it takes, and its length.
        configs: By config: when it is free.
        nodes: By node: when each of its devices is free, the first one first.
    """
    config_free = list(configs)
    node_free = [list(devices) for devices in nodes]
    for config, node, width, length in units:
        free = node_free[node]
        start = max(config_free[config], free[width - 1])
        end: T = start + length
        config_free[config] = end
        if len(free) == 1:
            free[0] = end
        else:
            node_free[node] = sorted(free[width:] + [end] * width)
        yield start
