"""Candidates for a run's lead: they follow, lead, and survive outages of their store. The nodes work in the
candidate's pauses."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from cerebro_elastic.controller import candidate as candidates
from cerebro_elastic.controller.candidate import PATIENCE, Candidate, Host
from cerebro_elastic.core.history.machine import fold
from cerebro_elastic.core.invariants import check
from cerebro_elastic.core.model import events as ev
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.errors import RunError, StoreUnavailable
from cerebro_elastic.scheduling.longest_remaining import LongestRemaining
from cerebro_elastic.store.client.base import KeyValue, Store
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.ledger.journal import Journal, read_journal
from support.clocks import HandClock
from support.ledger import Ledger
from support.memory_store import MemoryStore
from support.world import World

UNITS = 8
At = dict[int, Callable[[], object]]


class Away:
    """A store, out of reach while ``away``, or while ``narrow`` for requests that take several packets."""

    def __init__(self, store: Store) -> None:
        self.away = self.narrow = False
        self._store = store

    def get(self, key: str) -> KeyValue | None:
        if self.narrow and len(key) > 1500:
            raise StoreUnavailable("nobody answers")
        return self.__getattr__("get")(key)

    def __getattr__(self, name: str) -> Any:
        if self.away and name != "close":
            raise StoreUnavailable("nobody answers")
        return getattr(self._store, name)


class Stage:
    """A run of two configs, two epochs and two partitions on one node, which works whenever the candidate
    pauses; ``at[n]`` happens in between, when n units are done."""

    def __init__(self, journal: Path, store: Store | None = None, at: At | None = None) -> None:
        plan = Plan(uuid.uuid4().hex, partitions=2, epochs=2)
        make_store: Callable[..., Store] = (lambda _clock: store) if store else MemoryStore
        self.world = World(plan, 2, LongestRemaining(), store=make_store)
        self.world.join("a")
        self.journal = journal
        self.at = dict(at or {})
        self.said: list[str] = []
        self.pauses = 0

    def candidate(self, ledger: Ledger | None = None, **arguments: Any) -> Candidate:
        world = self.world
        host = Host(say=self.said.append, pause=self.pause)
        journal = Journal(self.journal)
        return Candidate(ledger or world.ledger, world.policy, world.search, journal, host, **arguments)

    def pause(self, _state: State) -> None:
        self.pauses += 1
        assert self.pauses < 1000, self.said
        world = self.world
        happens = self.at.pop(len(world.acknowledged), None)
        if happens is not None:
            happens()
        world.start("a")
        while world.workers:
            world.commit(0)

    def verdict(self) -> list[ev.Event]:
        """The journal's events, after a check of the invariants."""
        events, state = read_journal(self.journal), State()
        for event in events:
            state = fold(state, event)
        now = self.world.ledger.state()
        assert state.outcome == "finished"
        assert replace(state, revision=0, leader=None) == replace(now, revision=0, leader=None)
        assert check(events, readable=lambda ref: ref.digest in self.world.saved) == []
        return events


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.jsonl"


def count(events: list[ev.Event], kind: type) -> int:
    return sum(isinstance(event, kind) for event in events)


def test_it_leads_to_the_runs_end(path: Path) -> None:
    stage = Stage(path)
    stage.candidate(name="me").run()
    events = stage.verdict()
    assert isinstance(events[0], ev.StateRead)
    assert set(events[0].state.nodes) == {"a"}
    assert count(events, ev.UnitCommitted) == UNITS
    assert [e.leader for e in events if isinstance(e, ev.LeaderChanged)] == ["me"]
    assert stage.said == []


def test_it_follows_while_another_leads_and_takes_over_when_nobody_does(path: Path) -> None:
    stage = Stage(path)
    world = stage.world
    world.elect()
    leads = [True]

    def work(state: State) -> None:
        """The other candidate leads for three units, and then is gone."""
        if leads and len(world.acknowledged) < 3:
            world.control()
        elif leads:
            leads.clear()
            world.store.revoke(world.leader_lease)
        stage.pause(state)

    host = Host(say=stage.said.append, pause=work)
    Candidate(world.ledger, world.policy, world.search, Journal(path), host, name="me").run()
    events = stage.verdict()
    assert [e.leader for e in events if isinstance(e, ev.LeaderChanged)] == [None, "me"]
    assert count(events, ev.UnitCommitted) == UNITS


def test_a_store_that_is_away_again_and_again_is_waited_for_and_said_once(path: Path) -> None:
    """The second time it is the larger packets that are lost: then nobody stands for election."""
    stage = Stage(path)
    real, key = stage.world.store, stage.world.ledger.keys.leader
    store = Away(real)
    pauses = []

    class Clock(HandClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            pauses.append(seconds)
            if len(pauses) % 20 == 0:
                store.away = store.narrow = False
            if len(pauses) == 20:
                real.revoke(real.get(key).lease)  # type: ignore[union-attr]  # which had ended long ago

    def lose_larger_packets() -> None:
        store.narrow = True
        real.revoke(real.get(key).lease)  # type: ignore[union-attr]

    clock = Clock()
    stage.at |= {
        3: partial(setattr, store, "away", True),
        5: lose_larger_packets,
        7: partial(clock.sleep, 31),
    }
    ledger = Ledger(cast(Store, store), stage.world.plan.run)
    stage.candidate(ledger, name="me", clock=clock).run()
    assert pauses == [1.0] * 40 + [31]
    assert stage.said == [
        "nobody answers. Waiting for it; units that have begun continue",
        "all goes well again",
    ]
    assert count(stage.verdict(), ev.UnitCommitted) == UNITS


def test_a_store_that_stays_away_is_given_up(path: Path) -> None:
    stage = Stage(path)
    store, clock = Away(stage.world.store), HandClock()
    store.away = True
    began = clock.now()
    stage.at.clear()
    ledger = Ledger(cast(Store, store), stage.world.plan.run)
    with pytest.raises(StoreUnavailable, match="nobody answers"):
        stage.candidate(ledger, clock=clock).run()
    assert PATIENCE < clock.now() - began < PATIENCE + 10
    assert len(stage.said) == 1


def test_it_goes_on_from_the_state_where_the_history_is_compacted(path: Path) -> None:
    """Another led to the end of the first epoch, and nobody else was there to see it."""
    stage = Stage(path)
    world = stage.world
    Journal(path).resume(world.ledger.read())
    world.elect()
    while len(world.acknowledged) < 5:
        world.control()
        world.start("a")
        while world.workers:
            world.commit(0)
    assert isinstance(world.store, MemoryStore)
    world.store.compact(world.ledger.revision())
    world.store.revoke(world.leader_lease)
    stage.candidate(name="me").run()
    events = stage.verdict()
    first, second = (event for event in events if isinstance(event, ev.StateRead))
    assert first.visits == ()
    assert len(second.visits) == 5
    assert count(events, ev.UnitCommitted) == UNITS - 5
    assert "compacted" in stage.said[0]


def test_events_after_an_interruption_can_be_recorded(path: Path) -> None:
    stage = Stage(path)

    def interrupt() -> None:
        raise KeyboardInterrupt

    stage.at[3] = interrupt
    candidate = stage.candidate(name="me")
    with pytest.raises(KeyboardInterrupt):
        candidate.run()
    before = count(read_journal(path), ev.UnitCommitted)
    stage.world.start("a")
    stage.world.commit(0)
    stage.world.lose("a")
    candidate.catch_up()
    recorded = read_journal(path)
    assert count(recorded, ev.UnitCommitted) == before + 1
    assert isinstance(recorded[-1], ev.NodeLeft)
    stage.world.join("a")
    stage.candidate(name="again").run()
    assert read_journal(path)[: len(recorded)] == recorded
    stage.verdict()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedEtcd]:
    """An etcd that can be stopped and started again at its address."""
    with EmbeddedEtcd(tmp_path / "etcd" / "data") as server:
        yield server


def test_it_goes_on_in_an_etcd_that_was_restored(path: Path, server: EmbeddedEtcd, tmp_path: Path) -> None:
    """While it leads, from a backup that knows nothing of the last units: they are done again."""
    backup, data = tmp_path / "backup", server.data_dir

    def stopped(act: Callable[[], object]) -> None:
        server.__exit__(None, None, None)
        act()
        server.__enter__()

    def restore() -> None:
        shutil.rmtree(data)
        backup.rename(data)

    with closing(EtcdStore(server.settings)) as store:
        stage = Stage(path, store)
        stage.at = {
            3: lambda: stopped(lambda: shutil.copytree(data, backup)),
            6: lambda: stopped(restore),
        }
        stage.candidate(name="me").run()
        events = stage.verdict()
    assert count(events, ev.UnitCommitted) > UNITS
    reads = [event for event in events if isinstance(event, ev.StateRead)]
    assert len(reads) == 2
    assert len(reads[1].visits) == 3
    assert any("restored" in text for text in stage.said)
    assert count(events, ev.RunEnded) == 1


# Where a run was extended.


def test_a_process_that_did_not_see_the_end_does_not_go_on_by_its_old_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "_STEP", 0.01)
    world = World(Plan("r", 2, 1), 1, LongestRemaining())
    world.elect()
    seen: list[State] = []

    def pause(state: State) -> None:
        seen.append(state)
        if len(seen) == 1:  # all of it while this process is suspended
            assert world.finish(["a"], 60)
            world.extend(1, 0)
            store = world.store
            assert isinstance(store, MemoryStore)
            store.compact(store.range("/").revision)

    candidate = Candidate(
        world.ledger, world.policy, world.search, Journal(tmp_path / "history.jsonl"), Host(pause=pause)
    )
    with pytest.raises(RunError, match="Start it again with the same command"):
        candidate.run()
    assert not candidate.leads


def test_a_leader_that_lost_the_lead_is_a_candidate_again(path: Path) -> None:
    stage = Stage(path)
    store, key = stage.world.store, stage.world.ledger.keys.leader
    stage.at[3] = lambda: store.revoke(store.get(key).lease)  # type: ignore[union-attr]
    stage.candidate(name="me").run()
    assert [e.leader for e in stage.verdict() if isinstance(e, ev.LeaderChanged)] == ["me", None, "me"]
    assert stage.said == ["controller me no longer leads the run (leader: None): standing for election again"]
