"""Longest remaining work first: the classic rule for open shops, and the default.

The makespan of an open shop is at least the load of its most loaded machine and the length of its
longest job (Gonzalez and Sahni 1976); so the node with most to do chooses first, and takes the
config with most to do, lest either become the tail of the run.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from cerebro_elastic.core.model.interfaces import SchedulingContext
from cerebro_elastic.core.model.units import Unit


class LongestRemaining:
    """Most loaded idle node first; it takes the eligible config with most remaining seconds (where progress
    is to be even, of those with fewest epochs behind them).

    Ties go to the lower name. Among one config's units the order is pseudorandom, another one in
    each epoch: SGD wants its partitions in random order (paper, section 3.1).
    """

    def choose(self, instance: SchedulingContext) -> Sequence[tuple[str, Unit]]:
        """At most one unit for each idle node, no config twice."""
        chosen: list[tuple[str, Unit]] = []
        taken: set[str] = set()
        seed = instance.seed[0]
        for node in sorted(instance.eligible, key=lambda name: (-instance.load.get(name, 0.0), name)):
            units = [unit for unit in instance.eligible[node] if unit.config not in taken]
            if units:
                unit = min(units, key=lambda u: (_place(instance, u), shuffled(u, seed)))
                chosen.append((node, unit))
                taken.add(unit.config)
        return chosen


def _place(instance: SchedulingContext, unit: Unit) -> tuple[int, float, str]:
    return unit.epoch if instance.even else 0, -instance.remaining[unit.config], unit.config


def shuffled(unit: Unit, seed: int) -> tuple[int, int]:
    """A unit's place among its config's, by a hash that is the same in every process."""
    return zlib.crc32(
        f"{seed} {unit.config} {unit.epoch} {unit.phase} {unit.partition}".encode()
    ), unit.partition
