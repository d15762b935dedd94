"""Random walks over the steps and faults of a run, and the simplest policy."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import chain, product

from cerebro_elastic.core.model.attempts import FailureKind
from cerebro_elastic.core.model.interfaces import SchedulingContext
from cerebro_elastic.core.model.units import Unit
from support.world import World


class FirstFit:
    """Gives each idle node the first unit that it may do, and fetches whatever it may. It gives no config
    twice, unless it is ``greedy``."""

    def __init__(self, greedy: bool = False) -> None:
        self.greedy = greedy

    def choose(self, instance: SchedulingContext) -> list[tuple[str, Unit]]:
        taken: set[str] = set()
        chosen = []
        for node, units in instance.eligible.items():
            both = chain(self._elsewhere(instance, node), units)
            unit = next((u for u in both if self.greedy or u.config not in taken), None)
            if unit is not None:
                taken.add(unit.config)
                chosen.append((node, unit))
        return chosen

    def _elsewhere(self, instance: SchedulingContext, node: str) -> Iterator[Unit]:
        for config, partition in product(instance.remaining, range(3)) if instance.elsewhere else ():
            assert instance.elsewhere is not None
            if (unit := instance.elsewhere(node, config, partition)) is not None:
                yield unit


Steps = dict[str, tuple[int, Callable[[World, random.Random, str], object]]]
STEPS: Steps = {
    "control": (35, lambda world, _rng, _name: [world.control() for _ in range(4)]),
    "start": (24, lambda world, _rng, name: world.start(name)),
    "commit": (18, lambda world, rng, _: world.commit(rng.randrange(4), keep=rng.random() < 0.3)),
    "split": (8, lambda world, rng, _: world.split(rng.randrange(4), 1)),
    "fail": (6, lambda world, rng, _: world.fail(rng.randrange(4), rng.choice(list(FailureKind)))),
    "lose": (3, lambda world, _rng, name: world.lose(name)),
    "join": (5, lambda world, _rng, name: world.join(name)),
    "drain": (4, lambda world, _rng, name: world.drain(name)),
    "elect": (2, lambda world, _rng, _name: world.elect()),
    "forget": (1, lambda world, rng, _: world.forget(rng.randrange(4))),
    "time": (2, lambda world, _rng, _name: world.pass_time(60.0)),
}
"""Each step with its weight; it gets the name of a node."""


def walk(world: World, rng: random.Random, steps: int, among: Steps = STEPS) -> None:
    """A random walk over all faults, on two nodes."""
    world.elect()
    world.join("a")
    world.join("b")
    weights = [weight for weight, _ in among.values()]
    for step in rng.choices(list(among), weights, k=steps):
        among[step][1](world, rng, rng.choice("ab"))
