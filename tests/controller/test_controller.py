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


def work(world: World, names: str) -> None:
    """Each node does the unit that it has, and the leader sees it."""
    for name in names:
        world.start(name)
    while world.workers:
        world.commit(0)
    settle(world)


def count(world: World, kind: type) -> int:
    return sum(isinstance(event, kind) for event in world.trace())


def test_with_replicas_others_go_on_without_fetching_when_a_node_is_lost() -> None:
    run = world(Plan("r", partitions=6, epochs=4, max_nodes=3, replicas=2), configs=6)
    for name in "abc":
        run.join(name, host=name)
    settle(run)
    homes = run.ledger.state().homes
    assert all(len(names) == 2 for names in homes.values())
    attempt = run.ledger.state().attempts["a"]
    assert attempt.prefetch is not None
    due = {attempt.unit.partition, attempt.prefetch.partition, *attempt.prefetch.replicas}
    assert due == {j for j, names in homes.items() if "a" in names}, "it shall get what is at home on it"
    for _ in range(4):
        work(run, "abc")
    nodes = run.ledger.state().nodes
    assert all(j in nodes[name].cached for j in homes for name in homes[j]), "got behind the units"
    before = run.ledger.state().attempts
    run.lose("a")
    settle(run)
    after = run.ledger.state()
    assert all(set(names) == {"b", "c"} for names in after.homes.values())
    assert after.attempts == {name: before[name] for name in "bc"}, "they are not interrupted"
    for _ in range(6):
        work(run, "bc")
        state = run.ledger.state()
        assert set(state.attempts) == {"b", "c"}
        fetched = [n for n, a in state.attempts.items() if a.unit.partition not in state.nodes[n].cached]
        assert fetched == []


def test_a_hint_names_what_the_node_would_take_next() -> None:
    run = world(Plan("r", partitions=2, epochs=2, max_nodes=1), configs=2)
    run.join("a")
    run.slow("a", 5.0)  # nothing is queued behind units that are not short
    settle(run)
    hits = units = 0
    while (attempt := run.ledger.assignment("a")) is not None:
        hint = attempt.prefetch
        work(run, "a")
        following = run.ledger.assignment("a")
        if following is not None:
            units += 1
            said = (hint.partition, hint.input) if hint else None
            hits += said == (following.unit.partition, following.input)
            busy = attempt.unit.config
            assert hint is None or hint.input is None or hint.input != run.ledger.config(busy).head  # type: ignore[union-attr]
    assert units == 7
    assert hits >= 5


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
