"""The rules by which the dispatcher chooses: one class each."""

from __future__ import annotations

import random
from bisect import insort
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias

from cerebro_elastic.openshop.dispatch import DispatchState


class Longest:
    """Longest remaining config first, most loaded node first.

    The makespan of an open shop is at least the load of its most loaded machine and the length of its longest
    job (Gonzalez and Sahni 1976); so the node with most to do chooses first, and takes the config with most
    to do, lest either become the tail. ``configs`` and ``nodes`` are weights on what remains: other weights
    than 1 make other schedules, some of them better (see ``rehearsal``)."""

    def __init__(self, configs: Sequence[float] = (), nodes: Sequence[float] = ()) -> None:
        self._configs, self._nodes = configs, nodes

    def begin(self, shop: DispatchState, idle: Sequence[int]) -> None:
        """The idle configs, kept sorted: the longest first."""
        self._rest, self._load, self._left = shop.rest, shop.load, shop.left
        self._weights = self._configs or [1.0] * len(shop.rest)
        self._node_weights = self._nodes or [1.0] * len(shop.load)
        self._later = shop.later
        self._idle = sorted((self._place(i), i) for i in idle)

    def arrange(self, nodes: list[int]) -> None:
        """Most loaded first."""
        if len(nodes) > 1:
            load, weights = self._load, self._node_weights
            nodes.sort(key=lambda n: -load[n] * weights[n])

    def pick(self, node: int, fits: Callable[[int], bool] | None) -> int | None:
        """The longest that has units for the node."""
        left, idle = self._left[node], self._idle
        for place, (_, i) in enumerate(idle):
            if left >> i & 1 and (fits is None or fits(i)):
                del idle[place]
                return i
        return None

    def add(self, config: int) -> None:
        """To its place among the others."""
        insort(self._idle, (self._place(config), config))

    def remove(self, config: int) -> None:
        """Somebody else has it."""
        self._idle = [entry for entry in self._idle if entry[1] != config]

    def _place(self, config: int) -> tuple[int, float]:
        return 0, -self._rest[config] * self._weights[config]


class Even(Longest):
    """Of the configs that have most epochs left the longest one first. So they keep within an epoch of each
    other, unless a node has no unit of those behind; no node waits for it."""

    def _place(self, config: int) -> tuple[int, float]:
        return -self._later[config], -self._rest[config] * self._weights[config]


class Planned(Longest):
    """Units in a planned order of their starts (``order``: (node, config, epoch) of each). A node takes what
    is next for it if that is next for its config, too; else it waits. What is not named comes last.

    Nobody waits for ever: what is next of all is so for its node and its config. That is as strict as a plan,
    but a rule all the same: there are no times in it. A config's units of one epoch on a node are alike."""

    def __init__(self, order: Sequence[tuple[int, int, int]]) -> None:
        super().__init__()
        self._of_node: dict[int, list[_Planned]] = {}
        self._of_config: dict[int, list[_Planned]] = {}
        rest: Counter[tuple[int, int, int]] = Counter()
        for unit in reversed(order):  # so that the next is the last of a list
            rest[unit] += 1
            self._of_node.setdefault(unit[0], []).append((*unit, rest[unit]))
            self._of_config.setdefault(unit[1], []).append((*unit, rest[unit]))

    def begin(self, shop: DispatchState, idle: Sequence[int]) -> None:
        """The idle configs, kept sorted: the longest first."""
        super().begin(shop, idle)
        self._shop = shop
        self._there, self._theirs = (
            {key: units.copy() for key, units in lists.items()} for lists in (self._of_node, self._of_config)
        )
        self.waiting: set[int] = set()
        """The nodes for which there was nothing that is next."""

    def pick(self, node: int, fits: Callable[[int], bool] | None) -> int | None:
        """What is next for the node."""
        self.waiting.discard(node)
        unit = self._next(self._there.get(node, []))
        if unit is None:
            return super().pick(node, fits)
        config = unit[1]
        ready = self._shop.resting >> config & 1 and self._left[node] >> config & 1
        if not ready or self._next(self._theirs[config]) != unit or not (fits is None or fits(config)):
            self.waiting.add(node)
            return None
        self.remove(config)
        return config

    def _next(self, units: list[_Planned]) -> _Planned | None:
        """The last of ``units`` that is still to be done."""
        epochs, mine = self._shop.epoch, self._shop.mine
        while units:
            node, config, epoch, rest = units[-1]
            at = epochs[config]
            if epoch > at or (epoch == at and mine[node][config].bit_count() >= rest):
                return units[-1]
            units.pop()
        return None


_Planned: TypeAlias = tuple[int, int, int, int]
"""Node, config, epoch, and how many units like it are left with it."""


class Furthest(Longest):
    """Successive halving: the config that has been given most work comes first, done or not.

    That is who has survived most rungs, and who costs most: if it survives again, it is the tail. So it never
    waits, while those that nobody knows anything of yet fill the nodes."""

    def begin(self, shop: DispatchState, idle: Sequence[int]) -> None:
        """The idle configs, kept sorted: whoever has been given most comes first."""
        super().begin(shop, ())
        self._shop, self._length = shop, [sum(row) for row in shop.tables.least]
        for i in idle:
            self.add(i)

    def _place(self, config: int) -> tuple[int, float]:
        epochs = self._shop.epoch[config] + 1 + self._shop.later[config]
        return 0, -epochs * self._length[config]


class Random:
    """A random config for a random node: Algorithm 1 of the paper (section 5.3)."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def begin(self, shop: DispatchState, idle: Sequence[int]) -> None:
        """All draws come from one generator, begun here."""
        self._rng = random.Random(self._seed)
        self._left, self._idle = shop.left, list(idle)

    def arrange(self, nodes: list[int]) -> None:
        """Shuffled."""
        self._rng.shuffle(nodes)

    def pick(self, node: int, fits: Callable[[int], bool] | None) -> int | None:
        """Any that has units for the node."""
        left = self._left[node]
        choices = [i for i in self._idle if left >> i & 1 and (fits is None or fits(i))]
        if not choices:
            return None
        config = self._rng.choice(choices)
        self._idle.remove(config)
        return config

    def add(self, config: int) -> None:
        """Among the others."""
        self._idle.append(config)

    def remove(self, config: int) -> None:
        """Somebody else has it."""
        self._idle.remove(config)


class InOrder:
    """Each node goes through the configs in an order of its own, and skips those that are busy.

    ``orders`` (``[N][C]``) are the configs of each node, first to last.
    """

    def __init__(self, orders: Sequence[Sequence[int]]) -> None:
        self._place = [{config: place for place, config in enumerate(order)} for order in orders]

    def begin(self, shop: DispatchState, idle: Sequence[int]) -> None:
        """The idle configs, as a set."""
        self._left, self._idle = shop.left, set(idle)

    def arrange(self, nodes: list[int]) -> None:
        """By number."""
        nodes.sort()

    def pick(self, node: int, fits: Callable[[int], bool] | None) -> int | None:
        """The first in the node's order."""
        left = self._left[node]
        choices = [i for i in self._idle if left >> i & 1 and (fits is None or fits(i))]
        if not choices:
            return None
        config = min(choices, key=self._place[node].__getitem__)
        self._idle.discard(config)
        return config

    def add(self, config: int) -> None:
        """Among the others."""
        self._idle.add(config)

    def remove(self, config: int) -> None:
        """Somebody else has it."""
        self._idle.discard(config)
