"""Rollouts: play the rest of a run forward by many rules, and keep the best (thesis, section 4.2.2).

The rules are ``Longest`` with weights on configs and nodes: all 1 first, then random ones, half of them
near the best so far. The result is a *rule*, not a plan of start times: followed online, it reacts to what
happens. The effort is counted in decisions, not in seconds, so that the answer depends on the arguments
alone."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from cerebro_elastic.extending.planning import (
    SPREADS,
    Dispatch,
    DispatchState,
    Instance,
    Longest,
    Rule,
    lightest,
    only_holders,
    relaxed,
)
from cerebro_planner.owners import evened, rounded

HORIZONS = (1.002, 1.01, 1.03)
"""The horizons tried, as shares of the bound (see ``DispatchSettings.horizon``)."""
GUARDS = (-1.0, -1.0, 0.0, 0.005, 0.01, 0.02)
"""The guards tried, as shares of the bound (see ``DispatchSettings.guard``)."""


@dataclass(frozen=True, slots=True)
class DispatchSettings:
    """A rule, and how critical configs are treated."""

    rule: Rule
    """The rule that picks a config for a node."""
    horizon: float = 1.01
    """By when a config must be able to end for another node to take over a unit of it: a share of the
    bound."""
    guard: float = -1.0
    """Configs with less slack than this have nodes kept free: a share of the bound; below 0: none."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """The best settings of several rollouts."""

    settings: DispatchSettings
    end: float
    """When the run would end by them, in seconds."""


def plan(state: DispatchState, seed: int) -> float:
    """Give every unit an owner.

    Returns:
        The earliest end of the run from here, as far as is known (seconds).
    """
    free = state.fork().ready(state.time)
    nodes, configs = ([at - state.time for at in times] for times in free)
    owners = only_holders(state)
    bound = 0.0
    if state.tables.replicated:
        passes = np.array([[state.passes(i, j) for j in range(len(row))] for i, row in enumerate(owners)])
        fractions = relaxed(_instance_of(state, nodes, configs), passes)
        if fractions is not None:
            owners = rounded(fractions, len(state.undone), len(state.tables.fetch), owners)
            bound = fractions.bound
        else:
            owners = lightest(state, nodes, owners)
        state.assign(owners)
        horizon = bound or state.least_end(nodes, configs)
        owners = evened(owners, state, horizon, nodes, configs, seed)
    state.assign(owners)
    return state.time + (bound or state.least_end(nodes, configs))


def rollout(
    state: DispatchState, candidates: Iterable[DispatchSettings], bound: float, seed: int, decisions: int
) -> Rollout:
    """The best of ``candidates`` and of random settings.

    Random settings are tried until ``decisions`` are spent or ``bound`` is reached.
    """
    rng = random.Random(seed)
    best: Rollout | None = None
    for settings in candidates:
        end, spent = _end(state, settings, bound, inf if best is None else best.end)
        decisions -= spent
        if best is None or end < best.end:
            best = Rollout(settings, end)
    even = ([1.0] * len(state.remaining), [1.0] * len(state.load))
    weights = even
    while decisions > 0 and (best is None or best.end > bound * (1 + 1e-9)):
        spread, near = rng.choice(SPREADS), weights if rng.random() < 0.5 else even
        tried = (_shaken(near[0], spread, rng), _shaken(near[1], spread, rng))
        settings = DispatchSettings(Longest(*tried), rng.choice(HORIZONS), rng.choice(GUARDS))
        end, spent = _end(state, settings, bound, inf if best is None else best.end)
        decisions -= max(spent, 1)
        if best is None or end < best.end:
            best, weights = Rollout(settings, end), tried
    assert best is not None
    return best


def adopt(state: DispatchState, settings: DispatchSettings, bound: float) -> None:
    """Treat critical configs by the settings from now on."""
    length = bound - state.time
    state.horizon = state.time + settings.horizon * length
    state.guard = settings.guard * length


def _end(state: DispatchState, settings: DispatchSettings, bound: float, cutoff: float) -> tuple[float, int]:
    """When the run would end by the settings, and how many decisions that took."""
    fork = state.fork()
    adopt(fork, settings, bound)
    dispatch = Dispatch(fork, settings.rule, cutoff=cutoff)
    return dispatch.play(), dispatch.decisions


def _shaken(weights: list[float], spread: float, rng: random.Random) -> list[float]:
    return [w * (1 + spread * rng.gauss(0, 1)) for w in weights]


def _instance_of(state: DispatchState, nodes: Sequence[float], configs: Sequence[float]) -> Instance:
    """The problem with the present replicas, as seen from now."""
    problem = state.tables.instance
    replicas = np.array(
        [[bits >> j & 1 for j in range(problem.partitions)] for bits in state.replicas], dtype=bool
    )
    available = replicas.copy()
    for n in state.away:
        available[n] = False
    # A partition that no present node holds is fetched; if it cannot be, it waits for the nodes that hold it.
    missing = ~available.any(axis=0)
    available[:, missing] = np.where(np.isfinite(problem.fetch)[missing], True, replicas[:, missing])
    return replace(
        problem,
        availability=available,
        fetch=np.full(problem.partitions, inf),
        node_ready=np.array(nodes),
        config_ready=np.array(configs),
    )
