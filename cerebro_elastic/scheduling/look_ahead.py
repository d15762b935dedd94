"""Policies of live runs that look ahead: they play the rest of the run forward from the present moment by
several rules, and do what the best of them would do now (thesis, section 4.2.2).

A live run has no memory between two decisions, so each begins anew. That loses nothing: the weights that are
tried are the same each time (they depend on the run's seed and on names alone), so what was found once is
found again as long as it is good. Dry runs go ``WINDOW`` units ahead, not to the end, and are judged by the
time before which the run cannot end from there. How much is tried is counted in decisions, so that the
answer depends on the moment alone.

In moments without a ``RemainingWork``, and where there is more than ``LARGEST`` to look at, all of them are
longest-remaining.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain, count
from math import inf
from typing import ClassVar

from cerebro_elastic.core.model.interfaces import RemainingWork, SchedulingContext
from cerebro_elastic.core.model.run import Progress
from cerebro_elastic.core.model.units import Unit
from cerebro_elastic.openshop.dispatch import DispatchState, Rule, ScheduledUnit
from cerebro_elastic.openshop.rearrangement import rearranged
from cerebro_elastic.openshop.rollouts import SPREADS
from cerebro_elastic.openshop.rules import Even, InOrder, Longest, Planned, Random
from cerebro_elastic.scheduling.longest_remaining import LongestRemaining, shuffled
from cerebro_elastic.scheduling.moment import first_visits, give_owners, least_end, present, problem_of

LARGEST = 100_000
"""Configs times partitions times nodes."""
DECISIONS = 2_000
"""Of all dry runs for one moment."""
WINDOW = 64
"""Units of a dry run, about."""
HORIZON = 1.01
"""Until when a config must be able to be done whose unit a node takes over, as a share of the least."""
WORTH = 0.005
"""By what share of its time a run must end earlier for its configs not to be kept within an epoch."""
RANDOM_RUNS = 5
"""How many random rules ``monte-carlo`` tries."""


class Ahead:
    """What looking ahead says (``_rule``), and longest-remaining for the nodes of which it says nothing."""

    waits: ClassVar[bool] = False
    """Whether it may rather have a node wait than give it what there is."""

    def choose(self, instance: SchedulingContext) -> Sequence[tuple[str, Unit]]:
        """At most one unit for each idle node, no config twice."""
        chosen, kept = self._foreseen(instance)
        nodes, configs = {node for node, _ in chosen}, {unit.config for _, unit in chosen}
        others = {
            node: [unit for unit in units if unit.config not in configs]
            for node, units in instance.eligible.items()
            if node not in nodes | kept
        }
        return [*chosen, *LongestRemaining().choose(replace(instance, eligible=others))]

    def _foreseen(self, instance: SchedulingContext) -> tuple[list[tuple[str, Unit]], set[str]]:
        """What begins now, and which nodes wait."""
        configs = {unit.config for units in instance.eligible.values() for unit in units}
        worth = len(configs) > 1 or instance.elsewhere is not None or self.waits
        left = instance.remaining_work() if worth else None
        size = 0 if left is None else len(left.configs) * len(left.holders) * len(left.nodes)
        if left is None or not 0 < size <= LARGEST:
            return [], set()
        shop, rule = self._rule(left, instance.seed)
        chosen = list(_as_units(first_visits(shop, rule), instance, left))
        # Who waits must wait for something: what the rule would begin may not be for its node to take.
        if not isinstance(rule, Planned) or not (chosen or any(left.configs.values())):
            return chosen, set()
        return chosen, {name for n, name in enumerate(left.nodes) if n in rule.waiting}

    def _rule(self, left: RemainingWork, seed: tuple[int, ...]) -> tuple[DispatchState, Rule]:
        """How to go on, and from where."""
        raise NotImplementedError


class Auto(Ahead):
    """An owner for every unit, and the best of some dry runs of longest-remaining with weights; before them,
    unless progress may be uneven, the rule that keeps it even."""

    def _rule(self, left: RemainingWork, seed: tuple[int, ...]) -> tuple[DispatchState, Rule]:
        shop = present(problem_of(left), left)
        give_owners(shop, left)
        if left.progress is Progress.EVEN:
            return shop, Even()
        weighted = (Longest(*weights) for weights in _weights(left, seed[0]))
        if left.progress is Progress.AFFORDABLE:
            return shop, _best(shop, chain([Even()], weighted), worth=WORTH)
        return shop, _best(shop, weighted)


class Target(Ahead):
    """Owners, and the horizon up to which a node may take over another's unit; no dry runs."""

    def _rule(self, left: RemainingWork, _seed: tuple[int, ...]) -> tuple[DispatchState, Rule]:
        shop = present(problem_of(left), left)
        give_owners(shop, left)
        shop.horizon = HORIZON * least_end(shop, ())
        return shop, Longest()


class MonteCarlo(Ahead):
    """The best of dry runs of random and longest-remaining rules, without owners."""

    def _rule(self, left: RemainingWork, seed: tuple[int, ...]) -> tuple[DispatchState, Rule]:
        shop = present(problem_of(left), left)
        shop.share()
        return shop, _best(shop, self._rules(left, seed))

    def _rules(self, left: RemainingWork, seed: tuple[int, ...]) -> Iterator[Rule]:
        weighted = (Longest(*weights) for weights in _weights(left, seed[0]))
        yield next(weighted)
        for number in range(RANDOM_RUNS):
            yield Random(random.Random(f"{seed} {number}").getrandbits(32))
        yield from weighted


class VectorRearrangement(Ahead):
    """All nodes go round one order of the configs, at a distance (paper, section 5.2)."""

    def _rule(self, left: RemainingWork, _seed: tuple[int, ...]) -> tuple[DispatchState, Rule]:
        problem = problem_of(left)
        shop = present(problem, left)
        shop.share()
        return shop, InOrder(rearranged(problem))


def _best(shop: DispatchState, rules: Iterator[Rule], worth: float = 0.0) -> Rule:
    """The rule by which the run can end first, as far as dry runs tell; of equals the first. Others than the
    first must be better than it by the share ``worth``."""
    least = least_end(shop, ())
    shop.horizon = HORIZON * least
    ahead = WINDOW * mean_unit(shop) / len(shop.held)
    best, end, decisions = next(rules), inf, DECISIONS
    rule = best
    while decisions > 0 and end > least * (1 + 1e-9):
        found, spent = dry_run(shop, rule, ahead, end)
        if found < end:
            best, end = rule, found if end < inf else found * (1 - worth)
        decisions -= spent
        rule = next(rules)
    return best


def dry_run(shop: DispatchState, rule: Rule, ahead: float, cutoff: float) -> tuple[float, int]:
    """When the run can end at best by what the rule does ``ahead`` seconds, and how many decisions that took:
    a dry run's own beginning counts as some."""
    twin = shop.fork()
    twin.horizon = shop.horizon
    visits: list[ScheduledUnit] = []
    ended = twin.run(rule, until=twin.time + ahead, cutoff=cutoff, record=visits.append)
    spent = twin.taken + (len(shop.undone) + len(shop.held)) // 4 + 1
    if ended == inf or (ahead == inf and not twin.finished):
        return inf, spent
    return least_end(twin, [visit.end for visit in visits]), spent


def mean_unit(shop: DispatchState) -> float:
    """Seconds of a unit, in the mean over what is left."""
    partitions = len(shop.tables.fetch)
    units = [u.bit_count() + partitions * e for u, e in zip(shop.undone, shop.later, strict=True)]
    seconds: float = sum(shop.fastest)
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
    visits: Sequence[ScheduledUnit], instance: SchedulingContext, left: RemainingWork
) -> Iterator[tuple[str, Unit]]:
    """The visits as what may be chosen; those that may not are left out. Of a config's units that are as good
    the order is pseudorandom, as in longest-remaining; a partition is fetched only for want of them."""
    nodes, configs = list(left.nodes), list(left.configs)
    for visit in visits:
        node, config = nodes[visit.node], configs[visit.config]
        units = [unit for unit in instance.eligible.get(node, ()) if unit.config == config]
        if units:
            yield node, min(units, key=lambda unit: shuffled(unit, instance.seed[0]))
        elif instance.elsewhere and (unit := instance.elsewhere(node, config, visit.partition)):
            yield node, unit
