"""Policies of live runs that look ahead (thesis, section 4.2.2).

They play the rest of the run forward from the present moment by several rules, and choose as the best rule
does. A live run has no memory between two decisions, so each decision starts from scratch. That loses
nothing: the weights that are tried depend on the run's seed and on names alone, so a rule that was found once
is found again as long as it is good.

Dry runs go ``WINDOW`` units ahead, not to the end. They are compared by the earliest time at which the run
can end from there. The effort is counted in decisions, so that the answer depends on the moment alone. Nodes
wait for the answer, so short units get less effort.

In moments without a ``RemainingWork``, and where the problem is larger than ``LARGEST``, all these policies
are ``longest-remaining``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain, count
from math import inf
from typing import ClassVar

import numpy as np

from cerebro_elastic.core.model.interfaces import RemainingWork, SchedulingContext
from cerebro_elastic.core.model.run import Progress
from cerebro_elastic.core.model.units import Unit
from cerebro_elastic.scheduling.longest_remaining import LongestRemaining, preferred
from cerebro_elastic.scheduling.openshop.dispatch import Dispatch
from cerebro_elastic.scheduling.openshop.instances import Instance
from cerebro_elastic.scheduling.openshop.owners import lightest, only_holders
from cerebro_elastic.scheduling.openshop.rules import (
    Even,
    InOrder,
    Longest,
    Planned,
    Random,
    Rule,
    rearranged,
)
from cerebro_elastic.scheduling.openshop.state import DispatchState, ScheduledUnit

LARGEST = 100_000
"""The largest problem to look ahead in: configs times partitions times nodes."""
DECISIONS = 2_000
"""The effort of all dry runs for one moment, at most."""
DECISIONS_PER_SECOND = 5_000
"""The effort for each expected second of a unit, divided by the nodes: a few per cent of the leader's core,
however short units are."""
LEAST_RULES = 2
"""How many rules are tried in any case: only a comparison with the plain rule shows the cost of even
progress."""
WINDOW = 64
"""About how many units a dry run goes ahead."""
SPREADS = (0.02, 0.05, 0.1, 0.2)
"""Standard deviations of the weights that dry runs try."""
HORIZON = 1.01
"""By when a config must be able to end for another node to take over a unit of it: a share of the least
end."""
WORTH = 0.005
"""The share of its time by which a run must end earlier for its configs not to be kept within an epoch."""
RANDOM_RUNS = 5
"""How many random rules ``monte-carlo`` tries."""


class LookAhead:
    """The choice by looking ahead (``_rule``), and by longest-remaining for the nodes that it leaves idle."""

    waits: ClassVar[bool] = False
    """Whether the policy may have a node wait although it could begin a unit."""

    def choose(self, context: SchedulingContext) -> Sequence[tuple[str, Unit]]:
        """At most one unit for each idle node, no config twice."""
        chosen, waiting = self._look_ahead(context)
        nodes, configs = {node for node, _ in chosen}, {unit.config for _, unit in chosen}
        eligible = {
            node: [unit for unit in units if unit.config not in configs]
            for node, units in context.eligible.items()
            if node not in nodes | waiting
        }
        return [*chosen, *LongestRemaining().choose(replace(context, eligible=eligible))]

    def _look_ahead(self, context: SchedulingContext) -> tuple[list[tuple[str, Unit]], set[str]]:
        """The units that begin now, and the nodes that wait."""
        configs = {unit.config for units in context.eligible.values() for unit in units}
        pays = len(configs) > 1 or context.elsewhere is not None or self.waits
        left = context.remaining_work() if pays and context.size <= LARGEST else None
        if left is None or not left.configs:
            return [], set()
        state, rule = self._rule(left, context.seed)
        chosen = list(_as_units(first_visits(state, rule), context, left))
        # A node may wait only while a unit runs or begins: the rule's unit may not be eligible.
        if not isinstance(rule, Planned) or not (chosen or any(left.configs.values())):
            return chosen, set()
        return chosen, {name for n, name in enumerate(left.nodes) if n in rule.waiting}

    def _rule(self, left: RemainingWork, seed: tuple[int, ...]) -> tuple[DispatchState, Rule]:
        """The rule to follow, and the state to follow it from."""
        raise NotImplementedError


class Auto(LookAhead):
    """The default: an owner for every unit, and the best of some dry runs of longest-remaining with weights.

    Unless progress may be uneven, the rule that keeps it even is tried first.

    Args:
        decisions: The effort of all dry runs for one moment, at most. A forecast makes less of it.
    """

    def __init__(self, decisions: int = DECISIONS) -> None:
        self._decisions = decisions

    def _rule(self, left: RemainingWork, seed: tuple[int, ...]) -> tuple[DispatchState, Rule]:
        state = present_state(instance_of(left), left)
        give_owners(state, left)
        if left.progress is Progress.EVEN:
            return state, Even()
        weighted = (Longest(*weights) for weights in _weights(left, seed[0]))
        if left.progress is Progress.AFFORDABLE:
            return state, _best(state, chain([Even()], weighted), worth=WORTH, decisions=self._decisions)
        return state, _best(state, weighted, decisions=self._decisions)


class Target(LookAhead):
    """Owners, and a horizon within which a node may take over another's unit; no dry runs."""

    def _rule(self, left: RemainingWork, _seed: tuple[int, ...]) -> tuple[DispatchState, Rule]:
        state = present_state(instance_of(left), left)
        give_owners(state, left)
        state.horizon = HORIZON * least_end(state, ())
        return state, Longest()


class MonteCarlo(LookAhead):
    """The best of dry runs of random and longest-remaining rules, without owners."""

    def _rule(self, left: RemainingWork, seed: tuple[int, ...]) -> tuple[DispatchState, Rule]:
        state = present_state(instance_of(left), left)
        state.share()
        return state, _best(state, self._rules(left, seed))

    def _rules(self, left: RemainingWork, seed: tuple[int, ...]) -> Iterator[Rule]:
        weighted = (Longest(*weights) for weights in _weights(left, seed[0]))
        yield next(weighted)
        for number in range(RANDOM_RUNS):
            yield Random(random.Random(f"{seed} {number}").getrandbits(32))
        yield from weighted


class VectorRearrangement(LookAhead):
    """All nodes go round one order of the configs, at a distance (paper, section 5.2)."""

    def _rule(self, left: RemainingWork, _seed: tuple[int, ...]) -> tuple[DispatchState, Rule]:
        problem = instance_of(left)
        state = present_state(problem, left)
        state.share()
        return state, InOrder(rearranged(problem))


def instance_of(left: RemainingWork) -> Instance:
    """The remaining work as an instance.

    Configs and nodes are numbered in the order of ``left``. Their present epochs are taken to be whole.
    """
    configs, partitions = len(left.configs), len(left.holders)
    # Made directly: ``instance`` checks its arguments, which takes longer than a dry run.
    return Instance(
        durations=np.array([left.seconds[config] for config in left.configs]),
        availability=np.array([[name in holders for holders in left.holders] for name in left.nodes]),
        sizes=np.ones(partitions),
        epochs=np.array([left.later[config] + 1 for config in left.configs]),
        hop=np.zeros(configs),
        fetch=np.full(partitions, left.fetch),
        node_ready=np.array(list(left.nodes.values()), dtype=float),
        config_ready=np.array(list(left.configs.values()), dtype=float),
    )


def present_state(problem: Instance, left: RemainingWork) -> DispatchState:
    """The state of ``problem`` (see ``instance_of``) in which the units of ``left`` are undone."""
    state = DispatchState.at_start(problem)
    for i, config in enumerate(left.configs):
        least, undone = state.tables.least[i], left.undone[config]
        state.undone[i] = sum(1 << j for j in undone)
        state.fastest[i] = sum(least[j] for j in undone) + state.later[i] * sum(least)
    return state


def give_owners(state: DispatchState, left: RemainingWork) -> None:
    """Give every unit an owner, such that loads are even.

    The linear program's answer would be better, but late. Nodes may take over units on other partitions that
    they have in their caches.
    """
    holders = only_holders(state)
    ready, _ = state.ready(0.0)
    state.assign(lightest(state, ready, holders) if state.tables.replicated else holders)
    for n, name in enumerate(left.nodes):
        for j in left.cached.get(name, ()):
            state.replicas[n] |= 1 << j
            state.tables.replicated = True


def first_visits(state: DispatchState, rule: Rule) -> list[ScheduledUnit]:
    """The units that begin now by ``rule``, each node and each config once. The state is of no further
    use."""
    visits: list[ScheduledUnit] = []
    Dispatch(state, rule, record=visits.append).play(until=state.time)
    nodes: set[int] = set()
    configs: set[int] = set()
    first = []
    for visit in visits:
        # Units that take no time would be over already, and others begun.
        if visit.node not in nodes and visit.config not in configs:
            first.append(visit)
            nodes.add(visit.node)
            configs.add(visit.config)
    return first


def least_end(state: DispatchState, ends: Sequence[float]) -> float:
    """The earliest time at which the run can end, if no node and no config waits any more (seconds); ``ends``
    are those of the units so far."""
    return max(state.least_end(*state.ready(state.time)), *ends, 0.0)


def _best(
    state: DispatchState, rules: Iterator[Rule], worth: float = 0.0, decisions: float = DECISIONS
) -> Rule:
    """The rule by which the run ends first in dry runs of at most ``decisions`` decisions; of equal ones the
    first.

    Other rules than the first must be better than it by the share ``worth``.
    """
    least = least_end(state, ())
    state.horizon = HORIZON * least
    unit_seconds, nodes = mean_unit(state), len(state.replicas)
    ahead = WINDOW * unit_seconds / nodes
    best, best_end = next(rules), inf
    decisions = min(decisions, DECISIONS_PER_SECOND * unit_seconds / nodes)
    rule, tried = best, 0
    while (decisions > 0 or tried < LEAST_RULES) and best_end > least * (1 + 1e-9):
        end, spent = dry_run(state, rule, ahead, best_end)
        tried += 1
        if end < best_end:
            best, best_end = rule, end if best_end < inf else end * (1 - worth)
        decisions -= spent
        rule = next(rules)
    return best


def dry_run(state: DispatchState, rule: Rule, ahead: float, cutoff: float) -> tuple[float, int]:
    """Play a fork of the state forward by the rule.

    Args:
        ahead: How many seconds to play.
        cutoff: The dry run is given up once the run cannot end before.

    Returns:
        When the run can end at best, and the decisions spent: the fork itself counts as some.
    """
    fork = state.fork()
    visits: list[ScheduledUnit] = []
    dispatch = Dispatch(fork, rule, cutoff=cutoff, record=visits.append)
    ended = dispatch.play(until=fork.time + ahead)
    spent = dispatch.decisions + (len(state.undone) + len(state.replicas)) // 4 + 1
    if ended == inf or (ahead == inf and not fork.finished):
        return inf, spent
    return least_end(fork, [visit.end for visit in visits]), spent


def mean_unit(state: DispatchState) -> float:
    """Mean seconds of a remaining unit."""
    partitions = len(state.tables.fetch)
    units = [u.bit_count() + partitions * e for u, e in zip(state.undone, state.later, strict=True)]
    seconds: float = sum(state.fastest)
    return seconds / max(sum(units), 1)


def _weights(left: RemainingWork, seed: int) -> Iterator[tuple[list[float], list[float]]]:
    """Weights of configs and nodes: even ones first, then random ones."""
    yield [1.0] * len(left.configs), [1.0] * len(left.nodes)
    for number in count():
        yield (
            [_weight(seed, number, name) for name in left.configs],
            [_weight(seed, number, name) for name in left.nodes],
        )


@lru_cache(maxsize=100_000)
def _weight(seed: int, number: int, name: str) -> float:
    return 1 + SPREADS[number % len(SPREADS)] * random.Random(f"{seed} {number} {name}").gauss(0, 1)


def _as_units(
    visits: Sequence[ScheduledUnit], context: SchedulingContext, left: RemainingWork
) -> Iterator[tuple[str, Unit]]:
    """The visits as pairs of a node and a unit that may be chosen; other visits are left out.

    Of a config's units that are as good, one is taken as in longest-remaining. A partition is
    fetched only where the config has no eligible unit.
    """
    nodes, configs = list(left.nodes), list(left.configs)
    for visit in visits:
        node, config = nodes[visit.node], configs[visit.config]
        units = [unit for unit in context.eligible.get(node, ()) if unit.config == config]
        if units:
            yield node, preferred(context, node, units)
        elif context.elsewhere and (unit := context.elsewhere(node, config, visit.partition)):
            yield node, unit
