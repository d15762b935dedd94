"""Longest remaining work first, the classic rule for open shops. It is also the model for your own policy.

A policy is a class without arguments whose ``choose`` assigns units to idle nodes. Name it in the entry point
group ``cerebro.schedulers``, write that name after ``scheduler:`` in a recipe, and try the class with
``cerebro_elastic.testing.policy_contract``.

The makespan of an open shop is at least the load of its most loaded machine and the length of its longest job
(Gonzalez and Sahni 1976). So the node with most to do chooses first and takes the config with most to do, so
that neither becomes the tail of the run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b

from cerebro_elastic.core.model.interfaces import SchedulingContext
from cerebro_elastic.core.model.units import Unit


class LongestRemaining:
    """The most loaded idle node takes the eligible config with most remaining seconds, and so on.

    For even progress, configs with fewer finished epochs come first. Ties go to the lower name. The order of
    one config's units is pseudorandom and differs from epoch to epoch, because SGD wants its partitions in
    random order (paper, section 3.1). Where batches are shared, units whose batches the host has made come
    first, and the configs of a node have one order for each epoch.
    """

    def choose(self, context: SchedulingContext) -> Sequence[tuple[str, Unit]]:
        """Assign units to idle nodes.

        The answer depends on ``context`` alone: no clock, no state, no randomness but from
        ``context.seed``. So a controller that takes over, the simulator and ``cerebro verify`` get the same
        answer.

        Args:
            context: The moment: idle nodes with their eligible units, and the seconds to expect.

        Returns:
            Pairs of an idle node and one of its eligible units: each node and each config at most once.
        """
        nodes = list(context.eligible)
        if len(nodes) > 1:
            nodes.sort(key=lambda name: (-context.load(name), name))

        def take(node: str, units: list[Unit]) -> Unit:
            first = min(units, key=lambda unit: _rank(context, unit)).config
            return preferred(context, node, [unit for unit in units if unit.config == first])

        return in_turn(context, nodes, take)


class Randomized:
    """Each idle node takes a random unit among those eligible: lines 6 to 15 of Algorithm 1 of the paper
    (section 5.3).

    The context's seed alone feeds the generator, so every controller decides alike at one moment.
    """

    def choose(self, context: SchedulingContext) -> Sequence[tuple[str, Unit]]:
        """At most one unit for each idle node, no config twice."""
        rng = random.Random(repr(context.seed))
        return in_turn(context, sorted(context.eligible), lambda _node, units: rng.choice(units))


def in_turn(
    context: SchedulingContext, nodes: Sequence[str], take: Callable[[str, list[Unit]], Unit]
) -> list[tuple[str, Unit]]:
    """One node after the other takes one of its eligible units, of a config that none has taken before."""
    chosen: list[tuple[str, Unit]] = []
    taken_configs: set[str] = set()
    for node in nodes:
        units = [unit for unit in context.eligible[node] if unit.config not in taken_configs]
        if units:
            chosen.append((node, take(node, units)))
            taken_configs.add(chosen[-1][1].config)
    return chosen


def _rank(context: SchedulingContext, unit: Unit) -> tuple[int, float, str]:
    """The config with the lowest rank comes first."""
    epoch = unit.epoch if context.even else 0
    return epoch, -context.remaining[unit.config], unit.config


def preferred(context: SchedulingContext, node: str, units: Iterable[Unit]) -> Unit:
    """The unit of a config's ``units`` that the node takes: one whose batches its host has, else any, at
    random.

    Where batches are shared the node draws one order for all configs. So a lone node, whose made batches are
    always the first ones of its order, follows this order for every config.
    """
    if node not in context.batches:
        return min(units, key=lambda unit: _shuffled(unit, f"{context.seed[0]} {unit.config}"))
    made, drawn = context.batches[node], f"{context.seed[0]} {sorted(context.batches).index(node)}"
    return min(units, key=lambda unit: ((unit.epoch, unit.partition) not in made, _shuffled(unit, drawn)))


def _shuffled(unit: Unit, drawn: str) -> bytes:
    """A unit's place in the order that is ``drawn``, by a hash that is the same in every process.

    CRC-32 would not do: it is linear, so that eight partitions had eight orders of 40,320.
    """
    key = f"{drawn} {unit.epoch} {unit.phase} {unit.partition}"
    return blake2b(key.encode(), digest_size=8).digest()
