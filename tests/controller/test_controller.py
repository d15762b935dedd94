"""The controller over the exact store: what it does, and what happens when it is replaced, deposed or
left without an answer. Its runs are those of ``World``: real ledger, real controllers, no training."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest

from cerebro_elastic.controller.controller import Deposed
from cerebro_elastic.core.model.events import (
    ConfigCreated,
    HomesAssigned,
    RunEnded,
    UnitCommitted,
)
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.scheduling.longest_remaining import LongestRemaining
from cerebro_elastic.store.client.base import Store
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.system.clock import Clock
from support.faults import Lost, losing
from support.memory_store import MemoryStore
from support.walks import STEPS, walk
from support.world import World


def world(plan: Plan, configs: int = 2, **kwargs: object) -> World:
    made = World(plan, configs, LongestRemaining(), **kwargs)  # type: ignore[arg-type]
    made.elect()
    return made


def settle(world: World) -> None:
    """Let the leader handle all events so far, and those that follow from its actions."""
    before = -1
    while world.controllers[-1].step(0) or world.ledger.revision() != before:
        before = world.ledger.revision()


def count(world: World, kind: type) -> int:
    return sum(isinstance(event, kind) for event in world.trace())


def test_a_deposed_controller_says_so_and_has_changed_nothing() -> None:
    run = world(Plan("r", partitions=1, epochs=1))
    first = run.controllers[0]
    run.elect()
    before = run.ledger.revision()
    with pytest.raises(Deposed, match="leader: None"):
        first.step(0)
    assert run.ledger.revision() == before
    assert count(run, ConfigCreated) == 0


# Lost answers: at every transaction of a run, one and two in a row.


class Faults:
    """Loses what ``lost`` says at the transactions from number ``first`` on."""

    def __init__(self, first: int, lost: list[Lost]) -> None:
        self.number = 0
        self.at = dict(enumerate(lost, start=first))

    def __call__(self) -> Lost | None:
        self.number += 1
        return self.at.get(self.number)


def small_run(faults: Faults) -> World:
    """One config over two partitions on one node, to its end."""

    def store(clock: Clock) -> Store:
        return losing(MemoryStore(clock), faults)

    run = world(Plan("r", partitions=2, epochs=1), configs=1, store=store)
    run.join("a")
    for _ in range(40):
        run.control()
        if not run.workers:
            run.start("a")
        run.commit(0)
    return run


@pytest.mark.parametrize("lost", [[a] for a in Lost] + [[a, b] for a in Lost for b in Lost], ids=str)
@pytest.mark.parametrize("first", range(1, 11))
def test_a_lost_answer_anywhere_changes_nothing_of_the_outcome(first: int, lost: list[Lost]) -> None:
    run = small_run(Faults(first, lost))
    assert run.ledger.state().outcome == "finished"
    assert run.check() == []
    run.check_fold()
    assert count(run, UnitCommitted) == len(run.acknowledged) == 2
    assert count(run, RunEnded) == count(run, ConfigCreated) == count(run, HomesAssigned) == 1


@pytest.mark.parametrize("seed", range(40))
def test_random_walks_with_lost_answers(seed: int) -> None:
    rng = random.Random(seed)
    calm = False

    def fault() -> Lost | None:
        return None if calm or rng.random() < 0.8 else rng.choice(list(Lost))

    def store(clock: Clock) -> Store:
        return losing(MemoryStore(clock), fault)

    plan = Plan("r", partitions=2, epochs=2, evaluations=seed % 2, max_nodes=2, tries=20)
    run = World(plan, 2, LongestRemaining(), store=store)
    walk(run, rng, 120)
    calm = True
    assert run.finish(["a", "b"], 200)
    assert run.check() == []
    run.check_fold()


@pytest.fixture
def etcd_store(etcd: EmbeddedEtcd) -> Iterator[EtcdStore]:
    with closing(EtcdStore(etcd.settings)) as store:
        yield store


def test_a_random_walk_over_a_real_etcd(etcd_store: EtcdStore) -> None:
    rng = random.Random(7)
    plan = Plan(uuid.uuid4().hex, partitions=2, epochs=1, max_nodes=2, tries=9)
    steps = {name: step for name, step in STEPS.items() if name not in ("forget", "time")}
    run = World(plan, 2, LongestRemaining(), store=lambda _clock: etcd_store, patience=0.05)
    walk(run, rng, 60, steps)
    assert run.finish(["a", "b"], 200)
    assert run.check() == []
    run.check_fold()
    for controller in run.controllers:
        controller.__exit__()
