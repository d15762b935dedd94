"""The history in a file: whole, each revision once, however its writer was stopped."""

from __future__ import annotations

import uuid
from contextlib import closing
from pathlib import Path

import pytest

from cerebro_elastic.controller.follower import Follower
from cerebro_elastic.core.model.events import Event, NodeLeft
from cerebro_elastic.core.model.interfaces import SchedulingContext
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.core.model.units import Unit
from cerebro_elastic.errors import DiskFull, Rewound, RunError, StorageError
from cerebro_elastic.store.client.base import Delete
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.ledger.journal import Journal, read_journal, with_digest
from support.full_disk import room_in_files
from support.ledger import Ledger
from support.world import World


class FirstUnit:
    def choose(self, instance: SchedulingContext) -> list[tuple[str, Unit]]:
        return [(node, units[0]) for node, units in instance.eligible.items() if units][:1]


def play(world: World, commits: int) -> list[Event]:
    """A run on one node until it has ``commits`` visits."""
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


def append_all(journal: Journal, events: list[Event]) -> None:
    for event in events:
        journal.append([event])


def follow(world: World, journal: Journal, since: int) -> None:
    """Append what the store has from ``since`` on."""
    with Follower(world.ledger, since, lambda events, _: journal.append(events)) as follower:
        while follower.step(0):
            pass


def test_events_come_back_as_they_were_and_again_changes_nothing(world: World, path: Path) -> None:
    events = play(world, 5)
    append_all(Journal(path), events)
    once = path.read_bytes()
    append_all(Journal(path), events)
    assert path.read_bytes() == once
    assert read_journal(path) == events


def test_a_last_line_that_a_kill_has_torn_at_any_byte_is_written_anew(world: World, path: Path) -> None:
    events = play(world, 3)
    append_all(Journal(path), events)
    whole = path.read_bytes()
    before = whole[: whole[:-1].rfind(b"\n") + 1]
    for size in range(len(before), len(whole), 7):
        path.write_bytes(whole[:size])
        journal = Journal(path)
        assert read_journal(path) == events[:-1]
        assert journal.revision == events[-2].revision
        journal.append([events[-1]])
        assert path.read_bytes() == whole


def test_a_disk_that_is_full_at_any_byte_leaves_the_record_as_it_was(world: World, path: Path) -> None:
    """The same journal, and a new one, continue once there is space."""
    events = play(world, 2)
    append_all(Journal(path), events)
    lines = path.read_bytes().splitlines(keepends=True)
    path.unlink()
    journal = Journal(path)
    for number, (line, event) in enumerate(zip(lines, events, strict=True)):
        before = b"".join(lines[:number])
        for room in range(0, len(line), 7):
            with room_in_files(len(before) + room), pytest.raises(DiskFull, match=f"{path}: .*no space left"):
                journal.append([event])
            assert path.read_bytes() == before
        journal = Journal(path) if number % 2 else journal
        journal.append([event])
        assert path.read_bytes() == before + line


def test_a_record_that_another_program_has_cut_is_not_continued(world: World, path: Path) -> None:
    events = play(world, 2)
    journal = Journal(path)
    append_all(journal, events[:-1])
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(StorageError, match=r"history\.jsonl has .* another program has cut it"):
        journal.append(events[-1:])


def test_it_begins_with_the_run_as_it_is(path: Path, etcd: EmbeddedEtcd) -> None:
    """On an etcd that remembers a deleted run of the same id, a node that came and went, or nothing at
    all any more."""
    run = uuid.uuid4().hex
    plan = Plan(run, partitions=1, epochs=1)
    with closing(EtcdStore(etcd.settings)) as store:
        ledger = Ledger(store, run)
        ledger.open_run(Spec(plan, {}, "", "", "", "", {}, "", ""))
        ledger.register(Node("gone", "host"), gone := store.grant(30))
        staying = ledger.register(Node("staying", "host"), lease := store.grant(30))
        store.txn([], [Delete(ledger.keys.spec)])
        assert ledger.open_run(Spec(plan, {"another": 1}, "", "", "", "", {}, "", ""))
        store.revoke(gone)
        read = ledger.read()
        journal = Journal(path)
        assert not journal
        since = journal.resume(read)
        store.revoke(lease)
    assert journal
    assert read_journal(path) == [read]
    assert read.state.nodes == {"staying": staying}
    assert read.state.plan == plan
    assert since == read.revision + 1
    journal.append([NodeLeft(read.revision, "gone")])
    assert read_journal(path) == [read], "what came before is not added"
    assert Journal(path).resume(read) == since, "nothing that only this file has is read from the store"


def test_a_store_that_is_behind_goes_on_from_its_state(world: World, path: Path) -> None:
    """Restored from a snapshot: later lines have lower revisions than those before."""
    events = play(world, 3)
    append_all(Journal(path), events)
    early = World(Plan("r", partitions=2, epochs=2), 2, FirstUnit())
    known = len(play(early, 1))
    journal, read = Journal(path), early.ledger.read()
    since = journal.resume(read)
    early.lose("a")
    follow(early, journal, since)
    assert journal.revision < events[-1].revision
    assert read_journal(path) == [*events, read, *early.trace()[known:]]
    assert Journal(path).revision == journal.revision


@pytest.mark.parametrize("another", ["event", "gap"])
def test_a_store_with_another_history_is_found_out(world: World, path: Path, another: str) -> None:
    """It was restored, and has gone on: the revision of the last line is no sign."""
    events = play(world, 3)
    append_all(Journal(path), events[:8])
    journal = Journal(path)
    since = journal.resume(world.ledger.read())
    assert since == events[7].revision
    before = path.read_bytes()
    forged: Event = NodeLeft(since, "b") if another == "event" else events[8]
    with pytest.raises(Rewound, match=f"ends at revision {since}"):
        journal.append([forged])
    assert path.read_bytes() == before


def test_a_damaged_line_is_named(world: World, path: Path) -> None:
    append_all(Journal(path), play(world, 2))
    lines = path.read_text().splitlines()
    path.write_text(
        "\n".join([*lines[:2], with_digest('{"v":1,"kind":"Nonsense"}', "0" * 64), *lines[2:]]) + "\n"
    )
    with pytest.raises(RunError, match=r"history\.jsonl:3: .*Nonsense"):
        read_journal(path)
