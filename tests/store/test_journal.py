"""The history in a file: whole, each revision once, whatever stopped who wrote it."""

from __future__ import annotations

import uuid
from contextlib import closing
from pathlib import Path

import pytest

from cerebro_elastic.controller.controller import Controller
from cerebro_elastic.core.events import Event, LeaderChanged, NodeJoined, NodeLeft, RunOpened, UnitCommitted
from cerebro_elastic.core.invariants import check
from cerebro_elastic.core.machine import fold
from cerebro_elastic.core.ports import Instance
from cerebro_elastic.core.state import State
from cerebro_elastic.core.values import Node, Plan, Spec, Unit
from cerebro_elastic.errors import RunError
from cerebro_elastic.store.base import Delete, Put
from cerebro_elastic.store.embedded import EmbeddedEtcd
from cerebro_elastic.store.etcd import EtcdStore
from cerebro_elastic.store.journal import Journal, read_journal
from cerebro_elastic.store.ledger import Ledger
from cerebro_elastic.store.memory import MemoryStore
from cerebro_elastic.testing.world import World


class FirstUnit:
    def choose(self, instance: Instance) -> list[tuple[str, Unit]]:
        return [(node, units[0]) for node, units in instance.eligible.items() if units][:1]


def play(world: World, commits: int) -> list[Event]:
    """A run on one node until it has so many visits."""
    world.elect()
    world.join("a")
    while len(world.acknowledged) < commits:
        world.control()
        world.start("a")
        world.commit(0)
    return world.trace()


@pytest.fixture
def world() -> World:
    return World(Plan("r", partitions=2, epochs=2), 2, FirstUnit())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.jsonl"


def leader(world: World) -> int:
    item = world.store.get(world.ledger.keys.leader)
    assert item is not None
    return item.create_revision


def append_all(journal: Journal, events: list[Event]) -> None:
    for event in events:
        journal.append([event])


def folded(events: list[Event]) -> State:
    state = State()
    for event in events:
        state = fold(state, event)
    return state


def test_events_come_back_as_they_were_and_again_changes_nothing(world: World, path: Path) -> None:
    events = play(world, 5)
    append_all(Journal(path), events)
    once = path.read_bytes()
    append_all(Journal(path), events)
    assert path.read_bytes() == once
    assert read_journal(path) == events


@pytest.mark.parametrize("cut", [1, 10, 60])
def test_a_torn_last_line_is_written_anew(world: World, path: Path, cut: int) -> None:
    events = play(world, 3)
    append_all(Journal(path), events)
    path.write_bytes(path.read_bytes()[:-cut])
    journal = Journal(path)
    assert read_journal(path) == events[:-1]
    append_all(journal, events)
    assert read_journal(path) == events


def test_a_file_of_half_a_line_is_empty(path: Path) -> None:
    path.write_text('{"kind":"RunOp')
    assert Journal(path).revision == 0
    assert read_journal(path) == []


@pytest.mark.parametrize("known", [0, 1, 4, 9])
def test_what_was_missed_is_caught_up_with(world: World, path: Path, known: int) -> None:
    events = play(world, 3)
    append_all(Journal(path), events[:known])
    world.lose("a")
    world.elect()
    journal = Journal(path)
    journal.catch_up(world.ledger, world.controllers[-1].state, leader(world))
    assert read_journal(path) == world.trace()
    assert isinstance(read_journal(path)[-1], LeaderChanged)


def test_catching_up_does_not_wait_for_what_others_write_into_the_store(world: World, path: Path) -> None:
    """A shared store's revision is not the run's."""
    play(world, 3)
    world.elect()
    world.store.txn([], [Put("/cerebro/another/event", b"")])
    state = world.ledger.state()
    assert state.revision > leader(world)
    Journal(path).catch_up(world.ledger, state, leader(world))
    assert read_journal(path) == world.trace()


def test_nothing_is_left_out_between_the_election_and_the_taking_over(path: Path) -> None:
    """What happens in between is in the controller's state already, and yet in its history."""
    world = World(Plan("r", partitions=2, epochs=1), 2, FirstUnit())
    append_all(Journal(path), play(world, 1))
    while not world.workers:
        world.control()
        world.start("a")
    world.elect()
    elected, seen = leader(world), list[Event]()
    world.commit(0)
    with Controller(
        *(world.ledger, world.policy, world.search),
        name="controller-2",
        leader=elected,
        observe=lambda events, _: seen.extend(events),
    ) as controller:
        journal = Journal(path)
        journal.catch_up(world.ledger, controller.state, elected)
        assert controller.step(0)
    append_all(journal, seen)
    assert isinstance(seen[0], UnitCommitted)
    recorded = read_journal(path)
    assert recorded == world.trace()[: len(recorded)]
    assert recorded[-1] == seen[-1]


def test_a_new_run_begins_with_who_is_there(path: Path, etcd: EmbeddedEtcd) -> None:
    """On an etcd that remembers a deleted run of the same id, a node that came and went, or nothing at
    all any more."""
    run = uuid.uuid4().hex
    plan = Plan(run, partitions=1, epochs=1)
    with closing(EtcdStore(etcd.settings)) as store:
        ledger = Ledger(store, run)
        ledger.open(Spec(plan, {}, "", "", "", "", "", "", ""))
        ledger.register(Node("gone", "host"), gone := store.grant(30))
        staying = ledger.register(Node("staying", "host"), lease := store.grant(30))
        store.txn([], [Delete(ledger.keys.spec)])
        assert ledger.open(Spec(plan, {"another": 1}, "", "", "", "", "", "", ""))
        store.revoke(gone)
        elected = ledger.lead("me", lease)
        assert elected is not None
        state = ledger.state()
        journal = Journal(path)
        journal.catch_up(ledger, state, elected)
        store.revoke(lease)
    events = read_journal(path)
    assert [type(event) for event in events] == [NodeJoined, RunOpened, LeaderChanged]
    assert folded(events) == state
    assert state.nodes == {"staying": staying}
    assert journal.revision == Journal(path).revision == state.revision
    journal.append([NodeLeft(state.revision, "gone")])
    assert read_journal(path) == events, "what came before is not added"


def test_a_history_that_the_store_has_forgotten_is_an_error(world: World, path: Path) -> None:
    append_all(Journal(path), play(world, 2)[:5])
    world.elect()
    assert isinstance(world.store, MemoryStore)
    world.store.compact(leader(world))
    with pytest.raises(RunError, match=r"compacted.*complete record"):
        Journal(path).catch_up(world.ledger, world.controllers[-1].state, leader(world))


def test_a_damaged_line_is_named(world: World, path: Path) -> None:
    append_all(Journal(path), play(world, 2))
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], '{"v":1,"kind":"Nonsense"}', *lines[2:]]) + "\n")
    with pytest.raises(RunError, match=r"history\.jsonl:3: .*Nonsense"):
        read_journal(path)


def test_no_history_is_an_error(path: Path) -> None:
    with pytest.raises(RunError, match="holds no run"):
        read_journal(path)


def test_the_record_of_a_whole_run_passes_the_invariants(world: World, path: Path) -> None:
    append_all(Journal(path), play(world, 8))
    while world.ledger.state().outcome is None:
        world.control()
    append_all(Journal(path), world.trace())
    assert check(read_journal(path), readable=lambda ref: ref.digest in world.saved) == []
