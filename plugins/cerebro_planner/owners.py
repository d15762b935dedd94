"""Assigns units to holders: the linear program's answer, rounded and then evened out by exchanges.

A vertex of the program has at most one split unit for each node and config, so rounding costs little;
annealing then looks for an assignment in which no node and no config needs more than the bound."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np

from cerebro_elastic.extending.planning import DispatchState, Fractions, Owners, takers

STEPS = 20_000
"""The most steps of a round of annealing."""
STEPS_PER_UNIT = 200
"""The most steps for each unit."""
ROUNDS = 3
"""Rounds of annealing, each from the same owners."""
WARMTH = 0.03
"""The first temperature, as a share of the square of a mean unit's length relative to the horizon."""


def rounded(fractions: Fractions, configs: int, partitions: int, like: Owners) -> Owners:
    """Each unit to the node that has the largest share of it; as in ``like`` where nothing is left to do."""
    owners = [row[:] for row in like]
    best = np.zeros((configs, partitions))
    for k, (j, n) in enumerate(zip(fractions.partition, fractions.node, strict=True)):
        for i in np.flatnonzero(fractions.share[:, k] > best[:, j] + 1e-9):
            best[i, j] = fractions.share[i, k]
            owners[i][j] = int(n)
    return owners


def evened(
    owners: Owners,
    state: DispatchState,
    horizon: float,
    node_ready: Sequence[float],
    config_ready: Sequence[float],
    seed: int,
) -> Owners:
    """``owners``, changed so that nodes and configs exceed ``horizon`` by less: the best of some rounds of
    annealing."""
    if horizon <= 0:
        return owners
    best = _Shares(state, owners, horizon, node_ready, config_ready)
    if best.excess == 0 or not best.movable:
        return owners
    for number in range(ROUNDS):
        shares = _Shares(state, owners, horizon, node_ready, config_ready)
        shares.anneal(random.Random(f"{seed} {number}"))
        if shares.latest() < best.latest():
            best = shares
    return best.owners


class _Shares:
    """An assignment, and when each node and each config would be done by it if no node and no config
    waited."""

    def __init__(
        self,
        state: DispatchState,
        owners: Owners,
        horizon: float,
        node_ready: Sequence[float],
        config_ready: Sequence[float],
    ) -> None:
        self._horizon, self._seconds = horizon, state.tables.seconds
        self._choices = [takers(state, j) for j in range(len(state.tables.fetch))]
        self._passes = [[state.passes(i, j) for j in range(len(row))] for i, row in enumerate(owners)]
        self._active = [i for i, passes in enumerate(self._passes) if any(passes)]
        self._ready = (node_ready, config_ready)
        self.movable = [j for j, choices in enumerate(self._choices) if len(choices) > 1]
        self._set(owners)

    def _set(self, owners: Owners) -> None:
        self.owners = [row[:] for row in owners]
        self._load, self._length = list(self._ready[0]), list(self._ready[1])
        for i in self._active:
            for j, n in enumerate(self.owners[i]):
                self._load[n] += self._passes[i][j] * self._seconds[i][j][n]
                self._length[i] += self._passes[i][j] * self._seconds[i][j][n]
        self.excess = sum(map(self._excess, self._load)) + sum(map(self._excess, self._length))

    def latest(self) -> float:
        """When the last node or config is done."""
        return max(*self._load, *self._length)

    def anneal(self, rng: random.Random) -> None:
        """Try moves and exchanges, at first also some that make it worse; end at the best assignment met."""
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
            loads, lengths = self._after(moves)
            rise = sum(self._excess(new) - self._excess(self._load[n]) for n, new in loads.items())
            rise += sum(self._excess(new) - self._excess(self._length[i]) for i, new in lengths.items())
            if rise <= 0 or rng.random() < math.exp(-rise / (warmth * (1 - step / steps) ** 2)):
                for n, new in loads.items():
                    self._load[n] = new
                for i, new in lengths.items():
                    self._length[i] = new
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
        """A unit (config, partition) that moves from one node to another; every other time one moves back
        in exchange."""
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
        lengths: dict[int, float] = {}
        for i, j, a, b in moves:
            off, on = self._passes[i][j] * self._seconds[i][j][a], self._passes[i][j] * self._seconds[i][j][b]
            loads[a] = loads.get(a, self._load[a]) - off
            loads[b] = loads.get(b, self._load[b]) + on
            lengths[i] = lengths.get(i, self._length[i]) + on - off
        return loads, lengths


def _any(rng: random.Random, choices: Sequence[int]) -> int:
    """A random choice; much faster than ``rng.choice``."""
    return choices[int(rng.random() * len(choices))]
