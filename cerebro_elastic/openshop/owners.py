"""Which holder does which unit: the linear program's answer made whole, and evened out by exchanges.

A vertex of the program has at most one split unit for each node and config, so rounding costs little;
annealing then looks for an assignment in which no node and no config needs more than the bound."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np

from cerebro_elastic.openshop.bounds import Fractions
from cerebro_elastic.openshop.dispatch import DispatchState

STEPS = 20_000
STEPS_PER_UNIT = 200
ROUNDS = 3
WARMTH = 0.03
"""The first temperature, as a share of the square of a mean unit's length relative to the horizon."""

Owners = list[list[int]]
"""By config and partition: the node."""


def only_holders(shop: DispatchState) -> Owners:
    """The first holder of each partition, in use if there is one: the only choice without replicas."""
    bits = [shop.held[n] if n not in shop.away else 0 for n in range(len(shop.held))]
    homes = []
    for j in range(len(shop.tables.fetch)):
        holders = [n for n, held in enumerate(bits) if held >> j & 1]
        holders += [n for n, held in enumerate(shop.held) if held >> j & 1]
        homes.append(holders[0] if holders else next(n for n in range(len(bits)) if n not in shop.away))
    return [homes[:] for _ in shop.undone]


def rounded(fractions: Fractions, configs: int, partitions: int, like: Owners) -> Owners:
    """Each unit to the node that has the largest share of it; as in ``like`` where nothing is left to do."""
    owners = [row[:] for row in like]
    best = np.zeros((configs, partitions))
    for k, (j, n) in enumerate(zip(fractions.partition, fractions.node, strict=True)):
        for i in np.flatnonzero(fractions.share[:, k] > best[:, j] + 1e-9):
            best[i, j] = fractions.share[i, k]
            owners[i][j] = int(n)
    return owners


def lightest(shop: DispatchState, ready: Sequence[float], like: Owners) -> Owners:
    """Without the program: the longest unit first, each to the holder that is then done first."""
    owners = [row[:] for row in like]
    load, seconds = list(ready), shop.tables.seconds
    units = [(i, j) for i in range(len(owners)) for j in range(len(owners[i])) if _passes(shop, i, j)]
    for i, j in sorted(units, key=lambda u: -shop.tables.least[u[0]][u[1]] * _passes(shop, *u)):
        n = min(_takers(shop, j), key=lambda n: load[n] + seconds[i][j][n], default=owners[i][j])
        owners[i][j] = n
        load[n] += _passes(shop, i, j) * seconds[i][j][n]
    return owners


def evened(
    owners: Owners,
    shop: DispatchState,
    horizon: float,
    node_ready: Sequence[float],
    config_ready: Sequence[float],
    seed: int,
) -> Owners:
    """``owners`` with less that exceeds ``horizon``: the best of some rounds of annealing."""
    if horizon <= 0:
        return owners
    best = _Shares(shop, owners, horizon, node_ready, config_ready)
    if best.excess == 0 or not best.movable:
        return owners
    for number in range(ROUNDS):
        shares = _Shares(shop, owners, horizon, node_ready, config_ready)
        shares.anneal(random.Random(f"{seed} {number}"))
        if shares.latest() < best.latest():
            best = shares
    return best.owners


class _Shares:
    """An assignment, and when each node and each config would be done by it if nobody ever waited."""

    def __init__(
        self,
        shop: DispatchState,
        owners: Owners,
        horizon: float,
        node_ready: Sequence[float],
        config_ready: Sequence[float],
    ) -> None:
        self._horizon, self._seconds = horizon, shop.tables.seconds
        self._choices = [_takers(shop, j) for j in range(len(shop.tables.fetch))]
        self._passes = [[_passes(shop, i, j) for j in range(len(row))] for i, row in enumerate(owners)]
        self._active = [i for i, passes in enumerate(self._passes) if any(passes)]
        self._ready = (node_ready, config_ready)
        self.movable = [j for j, takers in enumerate(self._choices) if len(takers) > 1]
        self._set(owners)

    def _set(self, owners: Owners) -> None:
        self.owners = [row[:] for row in owners]
        self._load, self._rest = list(self._ready[0]), list(self._ready[1])
        for i in self._active:
            for j, n in enumerate(self.owners[i]):
                self._load[n] += self._passes[i][j] * self._seconds[i][j][n]
                self._rest[i] += self._passes[i][j] * self._seconds[i][j][n]
        self.excess = sum(map(self._excess, self._load)) + sum(map(self._excess, self._rest))

    def latest(self) -> float:
        """When the last one is done."""
        return max(*self._load, *self._rest)

    def anneal(self, rng: random.Random) -> None:
        """Moves and exchanges, at first also some that make it worse; ends at the best assignment met."""
        best, lowest = self.owners, self.excess
        units = sum(map(sum, self._passes))
        if not units:
            return
        warmth = WARMTH * (sum(self._load) / units / self._horizon) ** 2
        steps = min(STEPS, STEPS_PER_UNIT * units)
        for step in range(steps):
            if lowest <= 1e-12:
                break
            moves = self._proposal(rng)
            if moves is None:
                continue
            loads, rests = self._after(moves)
            rise = sum(self._excess(new) - self._excess(self._load[n]) for n, new in loads.items())
            rise += sum(self._excess(new) - self._excess(self._rest[i]) for i, new in rests.items())
            if rise <= 0 or rng.random() < math.exp(-rise / (warmth * (1 - step / steps) ** 2)):
                for n, new in loads.items():
                    self._load[n] = new
                for i, new in rests.items():
                    self._rest[i] = new
                for i, j, _, b in moves:
                    self.owners[i][j] = b
                self.excess += rise
                if self.excess < lowest - 1e-15:
                    best, lowest = [row[:] for row in self.owners], self.excess
        self._set(best)

    def _excess(self, length: float) -> float:
        """Squared, relative to the horizon."""
        return ((length - self._horizon) / self._horizon) ** 2 if length > self._horizon else 0.0

    def _proposal(self, rng: random.Random) -> list[tuple[int, int, int, int]] | None:
        """A unit (config, partition) from one node to another, and every other time one back in exchange."""
        i, j = _any(rng, self._active), _any(rng, self.movable)
        a, b = self.owners[i][j], _any(rng, self._choices[j])
        if a == b:
            return None
        moves = [(i, j, a, b)]
        if rng.random() < 0.5:
            back, over = _any(rng, self._active), _any(rng, self.movable)
            if self.owners[back][over] != b or a not in self._choices[over]:
                return None
            moves.append((back, over, b, a))
        return moves

    def _after(self, moves: Sequence[tuple[int, int, int, int]]) -> tuple[dict[int, float], dict[int, float]]:
        """The loads of nodes and the lengths of configs that the moves change."""
        loads: dict[int, float] = {}
        rests: dict[int, float] = {}
        for i, j, a, b in moves:
            off, on = self._passes[i][j] * self._seconds[i][j][a], self._passes[i][j] * self._seconds[i][j][b]
            loads[a] = loads.get(a, self._load[a]) - off
            loads[b] = loads.get(b, self._load[b]) + on
            rests[i] = rests.get(i, self._rest[i]) + on - off
        return loads, rests


def _any(rng: random.Random, choices: Sequence[int]) -> int:
    """Much faster than ``choice``."""
    return choices[int(rng.random() * len(choices))]


def _takers(shop: DispatchState, j: int) -> list[int]:
    """The nodes that hold the partition; who can fetch it, if there is none. (That a node which has nothing
    else to do fetches it is up to the dispatcher.)"""
    present = [n for n in range(len(shop.held)) if n not in shop.away]
    holders = [n for n in present if shop.held[n] >> j & 1]
    return holders or (present if shop.tables.fetched >> j & 1 else [])


def _passes(shop: DispatchState, i: int, j: int) -> int:
    return (shop.undone[i] >> j & 1) + shop.later[i]
