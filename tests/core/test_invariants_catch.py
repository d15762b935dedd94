"""Each invariant is shown to catch a mutation of the machine, seeded here on purpose: the
mutated run breaks it within a few hundred short walks, the true one never does."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from cerebro_elastic.controller import controller
from cerebro_elastic.core import decide, machine
from cerebro_elastic.core.actions import Withdraw
from cerebro_elastic.core.ports import Instance
from cerebro_elastic.core.values import Plan, Unit
from cerebro_elastic.store import ledger
from cerebro_elastic.testing import world
from cerebro_elastic.testing.world import World

Patch = pytest.MonkeyPatch
PLAN = Plan("r", 2, 2, min_nodes=1, max_nodes=2, tries=2)


class FirstFit:
    """No config twice, unless ``greedy``."""

    def __init__(self, greedy: bool = False) -> None:
        self.greedy = greedy

    def choose(self, instance: Instance) -> list[tuple[str, Unit]]:
        taken: set[str] = set()
        chosen = []
        for node, units in instance.eligible.items():
            unit = next((u for u in units if self.greedy or u.config not in taken), None)
            if unit is not None:
                taken.add(unit.config)
                chosen.append((node, unit))
        return chosen


def walk(world: World, rng: random.Random, steps: int) -> set[str]:
    """A random walk over all faults; the names of the invariants that it breaks."""
    world.elect()
    world.join("a")
    world.join("b")
    for _ in range(steps):
        name = rng.choice("ab")
        roll = rng.random()
        if roll < 0.35:
            world.control()
        elif roll < 0.6:
            world.start(name)
        elif roll < 0.8:
            world.commit(rng.randrange(4), keep=rng.random() < 0.3)
        elif roll < 0.88:
            world.fail(rng.randrange(4))
        elif roll < 0.92:
            world.lose(name)
        elif roll < 0.97:
            world.join(name)
        else:
            world.elect()
    return {v.invariant for v in world.check()}


def broken(policy: FirstFit, walks: int = 150) -> set[str]:
    found: set[str] = set()
    for seed in range(walks):
        found |= walk(World(PLAN, 2, policy), random.Random(seed), 60)
    return found


def permissive(patch: Patch) -> None:
    """A machine that allows every event, so that only the seeded mistake decides."""
    patch.setattr(machine, "_require", lambda *_: None)


def visits_anything_again(patch: Patch) -> None:
    permissive(patch)

    def all_units(config: object, plan: Plan) -> tuple[Unit, ...]:
        return tuple(Unit(config.id, config.epoch, j) for j in range(plan.partitions))  # type: ignore[attr-defined]

    patch.setattr(decide, "next_units", all_units)


def forgets_who_is_busy(patch: Patch) -> None:
    permissive(patch)
    instance = decide._instance

    def nobody_busy(state, plan, nodes, idle, _busy):  # type: ignore[no-untyped-def]
        return instance(state, plan, nodes, idle, set())

    patch.setattr(decide, "_instance", nobody_busy)
    patch.setattr(decide, "_takers", lambda _s, _c, _u, nodes: list(nodes))


def assigns_over_an_assignment(patch: Patch) -> None:
    permissive(patch)
    patch.setattr(decide, "_withdrawals", lambda _state: iter(()))
    assignments = decide._assignments
    patch.setattr(
        decide,
        "_assignments",
        lambda state, plan, policy: assignments(replace(state, attempts={}), plan, policy),
    )
    absent = ledger.absent
    patch.setattr(
        ledger,
        "absent",
        lambda key: absent("/nothing") if "/assign/" in key else absent(key),
    )


def withdraws_at_will(patch: Patch) -> None:
    patch.setattr(
        decide, "_withdrawals", lambda state: (Withdraw(a, "a better idea") for a in state.attempts.values())
    )


def commits_unfenced(patch: Patch) -> None:
    permissive(patch)
    patch.setattr(controller, "fold", lambda state, event: replace(state, revision=event.revision))
    patch.setattr(
        ledger.Ledger, "_report", lambda self, _attempt, ops, event: bool(self._do([], ops, event)) or True
    )


def commits_before_saving(patch: Patch) -> None:
    class Forgetful(set[str]):
        def add(self, _item: str) -> None: ...

    init = World.__init__

    def forget(self: World, *args: object, **kwargs: object) -> None:
        init(self, *args, **kwargs)  # type: ignore[arg-type]
        self.saved = Forgetful()

    patch.setattr(World, "__init__", forget)


def depends_on_the_node(patch: Patch) -> None:
    digest = world.digest

    def impure(source, attempt, hparams):  # type: ignore[no-untyped-def]
        return digest(source, attempt, {**hparams, "token": attempt.token})

    patch.setattr(world, "digest", impure)


def never_gives_up(patch: Patch) -> None:
    patch.setattr(decide, "_failures", lambda _state, _plan: iter(()))


MUTATIONS: dict[str, tuple[Callable[[Patch], None], bool]] = {
    "completeness": (visits_anything_again, False),
    "isolation": (forgets_who_is_busy, True),
    "exclusive access": (assigns_over_an_assignment, False),
    "non-preemption": (withdraws_at_will, False),
    "fencing": (commits_unfenced, False),
    "durability": (commits_before_saving, False),
    "purity": (depends_on_the_node, False),
    "boundedness": (never_gives_up, False),
}


def test_the_true_machine_breaks_none() -> None:
    assert broken(FirstFit()) == set()


@pytest.mark.parametrize("invariant", MUTATIONS)
def test_a_mutation_breaks(invariant: str, monkeypatch: Patch) -> None:
    mutate, greedy = MUTATIONS[invariant]
    mutate(monkeypatch)
    assert invariant in broken(FirstFit(greedy))
