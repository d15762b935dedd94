"""Randomized scheduling: Algorithm 1 of the paper (section 5.3)."""

from __future__ import annotations

import random
from collections.abc import Sequence

from cerebro_elastic.core.model.interfaces import SchedulingContext
from cerebro_elastic.core.model.units import Unit


class Randomized:
    """Each idle node takes a random unit among those eligible, lines 6 to 15 of the algorithm.

    The context's seed alone feeds the generator, so every controller decides alike at one moment.
    """

    def choose(self, context: SchedulingContext) -> Sequence[tuple[str, Unit]]:
        """At most one unit for each idle node, no config twice."""
        rng = random.Random(repr(context.seed))
        chosen: list[tuple[str, Unit]] = []
        taken_configs: set[str] = set()
        for node in sorted(context.eligible):
            units = [unit for unit in context.eligible[node] if unit.config not in taken_configs]
            if units:
                unit = rng.choice(units)
                chosen.append((node, unit))
                taken_configs.add(unit.config)
        return chosen
