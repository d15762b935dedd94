"""The dispatcher: what is left to do at a moment, played forward event by event.

Theory
------
Whenever a node is free, it takes a unit that it may do of a config that is idle; a ``Rule`` says which. That
is all of Algorithm 1 of the paper (section 5.3) but the rule. A dispatcher never plans a start time: it
decides when a node is free, with what it knows then. So the same code makes a plan (what it knows is what
happens), follows a run whose units take other times than expected, and tries rules out from any moment on
(``fork``).

With replicas, each unit has an owner, the node that is to do it (``assign``); a node that has nothing of its
own left may take another's (``stealing``) if it is less loaded, and if the config can still be done by the
horizon (the target rule). Without owners (``share``) any holder of the partition may take a unit (section
5.5).

Sets of configs and of partitions are bits of an int: they are small, copied often, and intersected all the
time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf
from typing import Protocol

import numpy as np

from cerebro_elastic.openshop.instances import Instance
from cerebro_elastic.openshop.reserving import in_time, reserve
from cerebro_elastic.openshop.stealing import steal

Seconds = list[list[list[float]]]
"""By config, partition and node."""


class Rule(Protocol):
    """Which free node is served first, and which idle config it takes. The rule keeps the idle configs."""

    def begin(self, shop: DispatchState, idle: Sequence[int]) -> None:
        """The configs that are idle now; what is left to do may be read from ``shop`` at any time."""

    def arrange(self, nodes: list[int]) -> None:
        """Sort free nodes in place, the one to be served first in front."""

    def pick(self, node: int, fits: Callable[[int], bool] | None) -> int | None:
        """An idle config that has units for ``node`` and ``fits``, idle no longer; None if there is none."""

    def add(self, config: int) -> None:
        """The config is idle again."""

    def remove(self, config: int) -> None:
        """The config is idle no longer."""


@dataclass(slots=True)
class ScheduledUnit:
    """A unit on a node, from ``start`` to ``end``."""

    config: int
    epoch: int
    partition: int
    node: int
    start: float
    end: float


class Tables:
    """What does not change while units are done; shared by all forks."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        takers = instance.availability.T | np.isfinite(instance.fetch)[:, None]
        seconds = instance.seconds()
        cost = seconds + np.where(instance.availability.T, 0.0, instance.fetch[:, None])
        self.seconds: Seconds = seconds.tolist()
        self.least = np.where(takers, cost, np.inf).min(axis=2).tolist()
        self.hop: list[float] = instance.hop.tolist()
        self.fetch: list[float] = instance.fetch.tolist()
        self.every = (1 << instance.partitions) - 1
        self.fetched = _bits(np.isfinite(instance.fetch))
        self.spare = instance.replicated


class DispatchState:
    """The state at ``time``. ``load`` and ``rest`` are the seconds before each node and each config, and
    ``fastest`` those that a config needs if it always gets the fastest node."""

    def __init__(self, tables: Tables) -> None:
        problem = tables.instance
        configs, nodes = problem.configs, problem.nodes
        self.tables = tables
        self.time = 0.0
        self.horizon = inf
        self.guard = -1.0
        self.reserved: dict[int, tuple[float, int]] = {}
        self.promised: dict[int, int] = {}
        self.shared = False
        self.undone = [tables.every if e else 0 for e in problem.epochs]
        self.later: list[int] = [max(int(e) - 1, 0) for e in problem.epochs]
        self.epoch = [0] * configs
        self.at = [-1] * configs
        self.held = [_bits(row) for row in problem.availability]
        self.owner: list[list[int]] = []
        self.mine = [[0] * configs for _ in range(nodes)]
        self.left = [0] * nodes
        self.load = [0.0] * nodes
        self.rest = [0.0] * configs
        self.fastest = [sum(row) * int(e) for row, e in zip(tables.least, problem.epochs, strict=True)]
        self.away: set[int] = set()
        self.running: dict[int, ScheduledUnit] = {}
        self.taken = 0
        self.resting = 0
        self.events: list[tuple[float, int, int]] = [
            *((float(t), n, -1) for n, t in enumerate(problem.node_ready) if t > 0),
            *((float(t), -1, i) for i, t in enumerate(problem.config_ready) if t > 0),
        ]
        heapify(self.events)
        self._plan: list[list[int]] = []

    # -- who is to do what

    def assign(self, owner: Sequence[Sequence[int]]) -> None:
        """Config ``i``'s units on partition ``j`` are for node ``owner[i][j]``, in all its epochs."""
        self.shared = False
        self._plan = [list(row) for row in owner]
        self.owner = [list(row) for row in owner]
        self._deal()

    def share(self) -> None:
        """Every unit is for whichever holder takes it first."""
        self.shared = True
        self._deal()

    def hand_over(self, i: int, j: int, n: int) -> None:
        """Config ``i``'s unit on partition ``j`` is for node ``n`` from now on."""
        before, seconds = self.owner[i][j], self.tables.seconds[i][j]
        self._drop(before, i, 1 << j)
        self.load[before] -= seconds[before]
        self._give(n, i, self.mine[n][i] | 1 << j)
        self.load[n] += seconds[n]
        self.rest[i] += seconds[n] - seconds[before]
        self.owner[i][j] = n

    def _deal(self) -> None:
        nodes, configs = range(len(self.held)), range(len(self.undone))
        seconds = self.tables.seconds
        self.mine = [[0] * len(configs) for _ in nodes]
        self.left = [0] * len(nodes)
        self.load = [0.0] * len(nodes)
        self.rest = [0.0] * len(configs)
        for i in configs:
            self._deal_epoch(i)
            for j in range(len(self.tables.fetch)):
                times = (self.undone[i] >> j & 1) + self.later[i]
                takers = self._owners(i, j) if times else ()
                for n in takers:
                    self.load[n] += times * seconds[i][j][n] / len(takers)
                    self.rest[i] += times * seconds[i][j][n] / len(takers)

    def _owners(self, i: int, j: int) -> Sequence[int]:
        if not self.shared:
            return (self.owner[i][j],)
        return [n for n, held in enumerate(self.held) if held >> j & 1]

    def _deal_epoch(self, i: int) -> None:
        """Give out the units that the config has left in its present epoch."""
        undone = self.undone[i]
        if self.shared:
            for n, held in enumerate(self.held):
                self._give(n, i, undone & held)
            return
        masks: dict[int, int] = {}
        for j, n in enumerate(self.owner[i]):
            masks[n] = masks.get(n, 0) | (undone & 1 << j)
        for n, mask in masks.items():
            self._give(n, i, mask)

    def _give(self, n: int, i: int, mask: int) -> None:
        self.mine[n][i] = mask
        if mask:
            self.left[n] |= 1 << i

    def _drop(self, n: int, i: int, bit: int) -> None:
        """The unit is no longer for the node."""
        mask = self.mine[n][i] & ~bit
        self.mine[n][i] = mask
        if not mask:
            self.left[n] &= ~(1 << i)

    # -- moments

    def free(self) -> list[int]:
        """The nodes that could take a unit now."""
        waiting = {n for _, n, i in self.events if i == -1}
        busy = self.running.keys() | self.away | waiting
        return [n for n in range(len(self.held)) if n not in busy]

    def idle(self) -> list[int]:
        """The configs that have something left and are in no unit."""
        busy = {v.config for v in self.running.values()} | {i for _, n, i in self.events if n == -1}
        return [i for i, mask in enumerate(self.undone) if mask and i not in busy]

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return not self.running and not any(self.undone)

    def fork(self) -> DispatchState:
        """A copy to try something out on: what runs will end as expected."""
        twin = object.__new__(DispatchState)
        twin.tables, twin.time, twin.horizon, twin.shared = (
            self.tables,
            self.time,
            self.horizon,
            self.shared,
        )
        twin.taken = twin.resting = 0
        for name in ("undone", "later", "epoch", "at", "held", "left", "load", "rest", "fastest", "_plan"):
            setattr(twin, name, getattr(self, name).copy())
        twin.guard, twin.reserved, twin.promised = self.guard, {}, {}
        twin.owner = [row.copy() for row in self.owner]
        twin.mine = [row.copy() for row in self.mine]
        twin.away = self.away.copy()
        twin.running = self.running.copy()
        twin.events = [(t, n, i) for t, n, i in self.events if n == -1 or i == -1]
        for n, v in self.running.items():
            twin.events.append((self.due(v), n, v.config))
        heapify(twin.events)
        return twin

    def due(self, visit: ScheduledUnit) -> float:
        """When a visit that runs is expected to end: not before now."""
        return max(self.time, visit.start + self.tables.seconds[visit.config][visit.partition][visit.node])

    def lose(self, node: int) -> ScheduledUnit | None:
        """The node is away from now on; the unit that it was in is undone, and returned."""
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
        """The node is back, with what it held; it waits for its ``node_ready`` as before."""
        self.away.discard(node)
        if (ready := float(self.tables.instance.node_ready[node])) > self.time:
            heappush(self.events, (ready, node, -1))

    def extend(self, config: int, epochs: int) -> None:
        """The config is to be trained for so many epochs more."""
        self.later[config] += epochs
        self.fastest[config] += epochs * sum(self.tables.least[config])
        for j, seconds in enumerate(self.tables.seconds[config]):
            takers = self._owners(config, j) if self.shared else (self._plan[config][j],)
            for n in takers:
                self.load[n] += epochs * seconds[n] / len(takers)
                self.rest[config] += epochs * seconds[n] / len(takers)
        if not self.undone[config]:
            self._next_epoch(config)

    def _next_epoch(self, i: int) -> bool:
        """Begin the config's next epoch, if there is one."""
        if not self.later[i]:
            return False
        self.later[i] -= 1
        self.epoch[i] += 1
        self.undone[i] = self.tables.every
        if not self.shared:
            self.owner[i] = list(self._plan[i])
        self._deal_epoch(i)
        return True

    # -- playing forward

    def run(
        self,
        rule: Rule,
        actual: Seconds | None = None,
        until: float = inf,
        cutoff: float = inf,
        record: Callable[[ScheduledUnit], None] | None = None,
        arrived: list[int] | None = None,
    ) -> float:
        """Dispatch by ``rule`` up to and including what happens at ``until``; the time of the last event.

        ``actual`` are the seconds that units really take, known when they have ended; ``record`` is called
        with each visit as it starts; ``arrived`` gets the configs that have nothing left to do, and the
        dispatch pauses there. If it turns out that nothing can be done before ``cutoff``, the answer is
        infinity, and the shop is of no further use."""
        seconds = actual or self.tables.seconds
        reserved, reserving = self.reserved, self.guard >= 0 and not self.shared
        left, load, fastest, running = self.left, self.load, self.fastest, self.running
        least, events, stealing = self.tables.least, self.events, self.tables.spare and not self.shared
        reserved.clear()
        self.promised.clear()
        for visit in running.values() if reserving else ():
            reserve(self, visit)
        rule.begin(self, idle := self.idle())
        self.resting = sum(1 << i for i in idle)
        free = self.free()
        while True:
            rule.arrange(free)
            waiting = []
            for n in free:
                i = rule.pick(n, in_time(self, n) if n in reserved else None) if left[n] else None
                if i is not None:
                    mask = self.mine[n][i]
                    j = (mask & -mask).bit_length() - 1
                elif n not in reserved and stealing and (stolen := steal(self, n, rule)) is not None:
                    i, j = stolen
                else:
                    waiting.append(n)
                    continue
                self.taken += 1
                self.resting &= ~(1 << i)
                visit = ScheduledUnit(
                    i, self.epoch[i], j, n, self.time, self.time + self._begin(n, i, j, seconds)
                )
                fastest[i] -= least[i][j]
                if visit.end + fastest[i] >= cutoff or visit.end + load[n] >= cutoff:
                    return inf
                running[n] = visit
                if reserving:
                    reserve(self, visit)
                heappush(events, (visit.end, n, i))
                if record is not None:
                    record(visit)
            if not events or events[0][0] > until:
                self.time = max(self.time, until) if until < inf else self.time
                return self.time
            self.time = events[0][0]
            free = waiting
            while events and events[0][0] == self.time:
                _, n, i = heappop(events)
                if n >= 0:
                    free.append(n)
                    running.pop(n, None)
                if i >= 0:
                    self.at[i] = n
                    if self.undone[i] or self._next_epoch(i):
                        rule.add(i)
                        self.resting |= 1 << i
                    elif arrived is not None and n >= 0:
                        arrived.append(i)
            if arrived:
                return self.time

    def _begin(self, n: int, i: int, j: int, actual: Seconds) -> float:
        """Take the unit off what is left, and tell how long it will keep the node."""
        expected, bit = self.tables.seconds[i][j], 1 << j
        self.undone[i] &= ~bit
        if self.shared:
            takers = self._owners(i, j)
            for m in takers:
                self._drop(m, i, bit)
                self.load[m] -= expected[m] / len(takers)
                self.rest[i] -= expected[m] / len(takers)
        else:
            self._drop(n, i, bit)
            self.load[n] -= expected[n]
            self.rest[i] -= expected[n]
        cost = actual[i][j][n]
        if self.at[i] not in (n, -1):
            cost += self.tables.hop[i]
        if not self.held[n] & bit:
            cost += self.tables.fetch[j]
            self.held[n] |= bit
        return cost


def _bits(flags: Sequence[bool] | np.ndarray) -> int:
    """The int that has the bits of the true places."""
    return sum(1 << place for place, flag in enumerate(flags) if flag)
