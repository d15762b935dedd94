"""Dispatch rules, one class each: a rule orders the free nodes, and picks an idle config for each."""

from __future__ import annotations

import random
from bisect import insort
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import numpy as np

from cerebro_elastic.scheduling.openshop.instances import Instance
from cerebro_elastic.scheduling.openshop.state import DispatchState


class Rule(Protocol):
    """The interface of a rule. It keeps the idle configs, in any order."""

    def begin(self, state: DispatchState, idle: Sequence[int]) -> None:
        """A dispatch begins with these ``idle`` configs. The rule may read ``state`` until it ends."""

    def arrange(self, nodes: list[int]) -> None:
        """Sort free nodes in place: the node to be served first comes first."""

    def pick(self, node: int, fits: Callable[[int], bool] | None) -> int | None:
        """Take an idle config that has units for ``node`` and ``fits`` out of the idle ones.

        Returns:
            The config; ``None`` if no idle config suits the node.
        """

    def add(self, config: int) -> None:
        """The config is idle again."""

    def remove(self, config: int) -> None:
        """The config is idle no longer: a node took over a unit of it."""


class Longest:
    """Longest remaining config first, most loaded node first.

    The makespan of an open shop is at least the load of its most loaded machine and the length of its longest
    job (Gonzalez and Sahni 1976). So the node with most to do chooses first and takes the config with most to
    do, so that neither becomes the tail.

    Args:
        configs: A weight for each config's remaining seconds. Other weights than 1 make other schedules,
            some of them better (see ``rollouts``).
        nodes: A weight for each node's load.
    """

    def __init__(self, configs: Sequence[float] = (), nodes: Sequence[float] = ()) -> None:
        self._configs, self._nodes = configs, nodes

    def begin(self, state: DispatchState, idle: Sequence[int]) -> None:
        """Sort the idle configs: the longest first."""
        self._state, self._remaining, self._load = state, state.remaining, state.load
        self._weights = self._configs or [1.0] * len(state.remaining)
        self._node_weights = self._nodes or [1.0] * len(state.load)
        self._later = state.later
        self._idle = sorted((self._key(i), i) for i in idle)

    def arrange(self, nodes: list[int]) -> None:
        if len(nodes) > 1:
            load, weights = self._load, self._node_weights
            nodes.sort(key=lambda n: load[n] * weights[n], reverse=True)

    def pick(self, node: int, fits: Callable[[int], bool] | None) -> int | None:
        """The longest config that has units for the node."""
        configs, idle = self._state.open_configs[node] & self._state.idle_configs, self._idle
        if not configs:
            return None
        for place, (_, i) in enumerate(idle):
            if configs >> i & 1 and (fits is None or fits(i)):
                del idle[place]
                return i
        return None

    def add(self, config: int) -> None:
        insort(self._idle, (self._key(config), config))

    def remove(self, config: int) -> None:
        self._idle = [entry for entry in self._idle if entry[1] != config]

    def _key(self, config: int) -> tuple[int, float]:
        return 0, -self._remaining[config] * self._weights[config]


class Even(Longest):
    """The configs with most epochs left first, and of those the longest one.

    So configs keep within an epoch of each other, unless a node has no unit of those behind. No node waits
    for evenness.
    """

    def _key(self, config: int) -> tuple[int, float]:
        return -self._later[config], -self._remaining[config] * self._weights[config]


class Planned(Longest):
    """Units in a planned order of their starts.

    A node takes the next unit of its order if that unit is also the next one of its config; otherwise it
    waits. Units that the order does not name come last. No node waits for ever, because the first unit of
    the whole order is next for its node and for its config. The order has no times, so it stays a rule
    where units take other seconds than planned. A config's units of one epoch on a node are alike.

    Args:
        order: Node, config and epoch of each unit, by planned start.
    """

    def __init__(self, order: Sequence[tuple[int, int, int]]) -> None:
        super().__init__()
        self._by_node: dict[int, list[_PlannedUnit]] = {}
        self._by_config: dict[int, list[_PlannedUnit]] = {}
        alike: Counter[tuple[int, int, int]] = Counter()
        for unit in reversed(order):  # so that the next unit is the last of a list
            alike[unit] += 1
            self._by_node.setdefault(unit[0], []).append((*unit, alike[unit]))
            self._by_config.setdefault(unit[1], []).append((*unit, alike[unit]))

    def begin(self, state: DispatchState, idle: Sequence[int]) -> None:
        super().begin(state, idle)
        self._ahead_of_node = {node: units.copy() for node, units in self._by_node.items()}
        self._ahead_of_config = {config: units.copy() for config, units in self._by_config.items()}
        self.waiting: set[int] = set()
        """The nodes that wait, because the unit that is next for them cannot begin yet."""

    def pick(self, node: int, fits: Callable[[int], bool] | None) -> int | None:
        """The config of the unit that is next for the node."""
        self.waiting.discard(node)
        unit = self._next(self._ahead_of_node.get(node, []))
        if unit is None:
            return super().pick(node, fits)
        config = unit[1]
        ready = (self._state.open_configs[node] & self._state.idle_configs) >> config & 1
        is_next = ready and self._next(self._ahead_of_config[config]) == unit
        if not is_next or not (fits is None or fits(config)):
            self.waiting.add(node)
            return None
        self.remove(config)
        return config

    def _next(self, units: list[_PlannedUnit]) -> _PlannedUnit | None:
        """The last of ``units`` that is still to be done; those after it are dropped."""
        epochs, owned = self._state.epoch, self._state.owned
        while units:
            node, config, epoch, alike = units[-1]
            present = epochs[config]
            if epoch > present or (epoch == present and owned[node][config].bit_count() >= alike):
                return units[-1]
            units.pop()
        return None


_PlannedUnit: TypeAlias = tuple[int, int, int, int]
"""Node, config, epoch, and how many units like it are left, itself included."""


class Furthest(Longest):
    """For successive halving: the config that has been given most work comes first, done or not.

    That config has survived most rungs and costs most, so it is the tail if it survives again. It never
    waits, while configs whose losses are not known yet fill the nodes.
    """

    def begin(self, state: DispatchState, idle: Sequence[int]) -> None:
        """Sort the idle configs: the one that has been given most work first."""
        super().begin(state, ())
        self._epoch, self._length = state.epoch, [sum(row) for row in state.tables.least]
        for i in idle:
            self.add(i)

    def _key(self, config: int) -> tuple[int, float]:
        epochs = self._epoch[config] + 1 + self._later[config]
        return 0, -epochs * self._length[config]


class _Pool:
    """The idle configs in no order: a node takes one of those that have units for it."""

    def begin(self, state: DispatchState, idle: Sequence[int]) -> None:
        self._state, self._idle = state, list(idle)

    def pick(self, node: int, fits: Callable[[int], bool] | None) -> int | None:
        """One of the configs that have units for the node."""
        configs = self._state.open_configs[node] & self._state.idle_configs
        if not configs:
            return None
        candidates = [i for i in self._idle if configs >> i & 1 and (fits is None or fits(i))]
        if not candidates:
            return None
        config = self._choice(node, candidates)
        self._idle.remove(config)
        return config

    def add(self, config: int) -> None:
        self._idle.append(config)

    def remove(self, config: int) -> None:
        self._idle.remove(config)

    def _choice(self, node: int, candidates: list[int]) -> int:
        raise NotImplementedError


class Random(_Pool):
    """A random config for a random node: Algorithm 1 of the paper (section 5.3)."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def begin(self, state: DispatchState, idle: Sequence[int]) -> None:
        super().begin(state, idle)
        self._rng = random.Random(self._seed)

    def arrange(self, nodes: list[int]) -> None:
        self._rng.shuffle(nodes)

    def _choice(self, node: int, candidates: list[int]) -> int:
        del node
        return self._rng.choice(candidates)


class InOrder(_Pool):
    """Each node goes through the configs in its own order, and skips those that are busy.

    Args:
        orders: The configs of each node, first to last (``[N][C]``).
    """

    def __init__(self, orders: Sequence[Sequence[int]]) -> None:
        self._place = [{config: place for place, config in enumerate(order)} for order in orders]

    def arrange(self, nodes: list[int]) -> None:
        nodes.sort()

    def _choice(self, node: int, candidates: list[int]) -> int:
        return min(candidates, key=self._place[node].__getitem__)


def rearranged(instance: Instance) -> list[list[int]]:
    """``[N][C]``: each node's order of the configs, by vector rearrangement (paper, section 5.2; Sevast'janov
    1994, Geometric methods in scheduling theory).

    A config is a vector of its seconds on each node. The configs are put into such an order that, after any
    number of them, all nodes have had about the same work (partial sums of vectors with sum 0 stay small:
    Steinitz). Every node then goes round that order, from starting points so far apart that no two nodes ever
    want the same config: no node waits. That is optimal if ``L_max >= (p^2 + p - 1) T_max``; else nodes may
    meet, and the node that comes second takes its next config.

    The order is found greedily (each time the config that leaves the sums smallest). That keeps them small in
    practice, without Sevast'janov's guarantee.
    """
    vectors = instance.durations if instance.durations.ndim == 2 else instance.durations.mean(axis=1)
    # Dummy work makes the nodes' loads equal: here the same share of it follows each config.
    missing = (vectors.sum(axis=0).max() - vectors.sum(axis=0)) / len(vectors)
    vectors = vectors + missing
    centred = vectors - vectors.mean(axis=1, keepdims=True)
    order, total, left = [], np.zeros(instance.nodes), list(range(len(vectors)))
    while left:
        sums = np.linalg.norm(total + centred[left], axis=1)
        config = left.pop(int(sums.argmin()))
        order.append(config)
        total += centred[config]
    work = np.cumsum(vectors.mean(axis=1)[order])
    starts = np.searchsorted(work, work[-1] * np.arange(instance.nodes) / instance.nodes, side="left")
    return [order[k:] + order[:k] for k in starts % len(order)]
