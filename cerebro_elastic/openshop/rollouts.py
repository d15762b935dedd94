"""Dry runs: play the rest of a run forward by many rules, and keep the best (thesis, section 4.2.2).

The rules are ``Longest`` with weights on configs and nodes: all 1 first, then random ones, half of them near
the best so far. A rule that is kept is a *rule*, no plan of start times: followed online it reacts to what
happens. How much is tried is counted in decisions, not in seconds, so that the answer depends on the
arguments alone."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.openshop.bounds import relaxed
from cerebro_elastic.openshop.dispatch import DispatchState, Rule
from cerebro_elastic.openshop.instances import Instance
from cerebro_elastic.openshop.owners import Owners, evened, lightest, only_holders, rounded
from cerebro_elastic.openshop.rules import Longest

SPREADS = (0.02, 0.05, 0.1, 0.2)
"""Standard deviations of the weights tried."""
HORIZONS = (1.002, 1.01, 1.03)
"""Until when a config must be able to be done whose unit a node takes over, as shares of the bound."""
GUARDS = (-1.0, -1.0, 0.0, 0.005, 0.01, 0.02)
"""How little a config has to spare for whom nodes are kept free, as shares of the bound; below 0: never."""


@dataclass(frozen=True, slots=True)
class DispatchSettings:
    """A rule, and how it treats what is critical: ``horizon`` and ``guard`` as shares of the bound."""

    rule: Rule
    horizon: float = 1.01
    guard: float = -1.0


@dataclass(frozen=True, slots=True)
class Rollout:
    """The best manner found, and when the run would end by it."""

    manner: DispatchSettings
    end: float


def plan(shop: DispatchState, seed: int) -> float:
    """Give every unit an owner; the time before which the run cannot end from here, as far as is known."""
    nodes, configs = ready(shop)
    owners = only_holders(shop)
    bound = 0.0
    if shop.tables.spare:
        fractions = relaxed(_present(shop, nodes, configs), _passes(shop))
        if fractions is not None:
            owners = rounded(fractions, len(shop.undone), len(shop.tables.fetch), owners)
            bound = fractions.bound
        else:
            owners = lightest(shop, nodes, owners)
        horizon = bound or _longest(shop, owners, nodes, configs)
        owners = evened(owners, shop, horizon, nodes, configs, seed)
    shop.assign(owners)
    bound = bound or _longest(shop, owners, nodes, configs)
    return shop.time + bound


def rollout(
    shop: DispatchState, manners: Iterable[DispatchSettings], bound: float, seed: int, decisions: int
) -> Rollout:
    """The best of ``manners`` and of random ones tried until so many ``decisions`` are spent or ``bound`` is
    reached."""
    rng = random.Random(seed)
    best: Rollout | None = None
    for manner in manners:
        end, spent = _end(shop, manner, bound, inf if best is None else best.end)
        decisions -= spent
        if best is None or end < best.end:
            best = Rollout(manner, end)
    even = ([1.0] * len(shop.rest), [1.0] * len(shop.load))
    weights = even
    while decisions > 0 and (best is None or best.end > bound * (1 + 1e-9)):
        spread, near = rng.choice(SPREADS), weights if rng.random() < 0.5 else even
        tried = (_shaken(near[0], spread, rng), _shaken(near[1], spread, rng))
        manner = DispatchSettings(Longest(*tried), rng.choice(HORIZONS), rng.choice(GUARDS))
        end, spent = _end(shop, manner, bound, inf if best is None else best.end)
        decisions -= max(spent, 1)
        if best is None or end < best.end:
            best, weights = Rollout(manner, end), tried
    assert best is not None
    return best


def adopt(shop: DispatchState, manner: DispatchSettings, bound: float) -> None:
    """Follow the manner from now on."""
    length = bound - shop.time
    shop.horizon = shop.time + manner.horizon * length
    shop.guard = manner.guard * length


def ready(shop: DispatchState) -> tuple[list[float], list[float]]:
    """By node and by config: the seconds from now until it is free, as expected."""
    nodes, configs = [0.0] * len(shop.load), [0.0] * len(shop.rest)
    for at, n, i in shop.fork().events:
        if n >= 0:
            nodes[n] = at - shop.time
        if i >= 0:
            configs[i] = at - shop.time
    return nodes, configs


def _end(shop: DispatchState, manner: DispatchSettings, bound: float, cutoff: float) -> tuple[float, int]:
    twin = shop.fork()
    adopt(twin, manner, bound)
    return twin.run(manner.rule, cutoff=cutoff), twin.taken


def _shaken(weights: list[float], spread: float, rng: random.Random) -> list[float]:
    return [w * (1 + spread * rng.gauss(0, 1)) for w in weights]


def _present(shop: DispatchState, nodes: Sequence[float], configs: Sequence[float]) -> Instance:
    problem = shop.tables.instance
    held = np.array([[bits >> j & 1 for j in range(problem.partitions)] for bits in shop.held], dtype=bool)
    available = held.copy()
    for n in shop.away:
        available[n] = False
    # What nobody has who is there is fetched; what cannot be fetched waits for the nodes that hold it.
    missing = ~available.any(axis=0)
    available[:, missing] = np.where(np.isfinite(problem.fetch)[missing], True, held[:, missing])
    return replace(
        problem,
        availability=available,
        fetch=np.full(problem.partitions, inf),
        node_ready=np.array(nodes),
        config_ready=np.array(configs),
    )


def _passes(shop: DispatchState) -> NDArray[np.int64]:
    return np.array(
        [
            [(mask >> j & 1) + later for j in range(len(shop.tables.fetch))]
            for mask, later in zip(shop.undone, shop.later, strict=True)
        ]
    )


def _longest(shop: DispatchState, owners: Owners, nodes: Sequence[float], configs: Sequence[float]) -> float:
    """The latest end of a node or a config, if nobody ever waits."""
    shop.assign(owners)
    ends = [t + load for t, load in zip(nodes, shop.load, strict=True) if load > 0]
    ends += [t + rest for t, rest in zip(configs, shop.rest, strict=True) if rest > 0]
    return max(ends, default=0.0)
