"""Randomized scheduling: Algorithm 1 of the paper (section 5.3)."""

from __future__ import annotations

import random
from collections.abc import Sequence

from cerebro_elastic.core.model.interfaces import SchedulingContext
from cerebro_elastic.core.model.units import Unit


class Randomized:
    """Each idle node takes a random unit among those eligible, lines 6 to 15 of the algorithm.

    The instance's seed alone feeds the generator, so whoever decides at one moment decides alike.
    """

    def choose(self, instance: SchedulingContext) -> Sequence[tuple[str, Unit]]:
        """At most one unit for each idle node, no config twice."""
        rng = random.Random(repr(instance.seed))
        chosen: list[tuple[str, Unit]] = []
        taken: set[str] = set()
        for node in sorted(instance.eligible):
            units = [unit for unit in instance.eligible[node] if unit.config not in taken]
            if units:
                unit = rng.choice(units)
                chosen.append((node, unit))
                taken.add(unit.config)
        return chosen
