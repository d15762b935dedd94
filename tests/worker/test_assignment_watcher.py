"""What a rank is reported: each assignment once, whatever happens to the connection, and the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from cerebro_elastic.core.model.attempts import Attempt, Failure, FailureKind
from cerebro_elastic.core.model.codec import encode
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.core.model.units import Unit
from cerebro_elastic.errors import Compacted, StoreUnavailable
from cerebro_elastic.store.client.base import Delete, KeyValue, Put
from cerebro_elastic.store.ledger.foreign import ForeignValue
from cerebro_elastic.system.clock import SystemClock
from cerebro_elastic.system.run_key import RunKey
from cerebro_elastic.worker.assignment_watcher import AssignmentWatcher
from cerebro_elastic.worker.leaving import Leaving
from support.ledger import Ledger
from support.memory_store import MemoryStore, MemoryWatch
from support.waiting import wait_for

BOOT = "boot"


class Run:
    """A run with a leader, and nodes that are given units."""

    def __init__(self, store: MemoryStore | None = None, key: RunKey | None = None) -> None:
        self.store = store or MemoryStore()
        self.ledger = Ledger(self.store, "r", key)
        self.ledger.open_run(Spec(Plan("r", 1, 1), {}, "", "", "", "", {}, "", ""))
        leader = self.ledger.lead("me", self.store.grant(30))
        assert leader is not None
        self.leader = leader
        self.nodes = {
            n: self.ledger.register(Node(n, "host", boot=BOOT), self.store.grant(30)) for n in ("n", "n1")
        }
        for name in "cd":
            leader.create_config(Config(name, {}))

    def assign(
        self, node: str = "n", config_id: str = "c", *, behind: int = 0, second: bool = False
    ) -> Attempt:
        config = self.ledger.config(config_id)
        assert config is not None
        registration = self.nodes[node].registration
        attempt = Attempt(Unit(config_id, 0, 0), node, registration, config.revision, queued_behind=behind)
        attempt = replace(attempt, second_key=second)
        token = self.leader.assign(attempt)
        assert token is not None
        return replace(attempt, token=token)

    def fail(self, attempt: Attempt) -> None:
        config = self.ledger.config("c")
        assert config is not None
        failure = Failure(attempt.unit, attempt.node, attempt.token, FailureKind.EXCEPTION, "boom")
        assert self.ledger.fail(attempt, config, failure)


@pytest.fixture
def run() -> Run:
    return Run()


@pytest.fixture
def leaving() -> Leaving:
    return Leaving(SystemClock())


def inbox_of(run: Run, node: str = "n", leaving: Leaving | None = None) -> AssignmentWatcher:
    return AssignmentWatcher(run.ledger, node, BOOT, leaving or Leaving(SystemClock()))


@pytest.fixture
def assignment_watcher(run: Run, leaving: Leaving) -> Iterator[AssignmentWatcher]:
    with inbox_of(run, leaving=leaving) as assignment_watcher:
        yield assignment_watcher


def test_assignments_come_in_order_and_then_the_end(run: Run, assignment_watcher: AssignmentWatcher) -> None:
    for _ in range(3):
        attempt = run.assign()
        assert assignment_watcher.next() == attempt
        run.fail(attempt)
    assert run.leader.end_run("finished")
    assert assignment_watcher.next() is None


def test_an_assignment_from_before_the_watch_is_returned(run: Run) -> None:
    attempt = run.assign()
    with inbox_of(run) as assignment_watcher:
        assert assignment_watcher.next() == attempt
    run.leader.end_run("finished")
    with inbox_of(run, "n1") as assignment_watcher:
        assert assignment_watcher.next() is None


@pytest.mark.parametrize("first_is_second", [False, True])
def test_the_older_of_two_assignments_comes_first(run: Run, first_is_second: bool) -> None:
    older = run.assign(second=first_is_second)
    younger = run.assign(config_id="d", behind=older.token, second=not first_is_second)
    with inbox_of(run) as assignment_watcher:
        assert assignment_watcher.next() == older
        wait_for(assignment_watcher.waits)
        assert assignment_watcher.next() == younger
        assert not assignment_watcher.waits()


def test_a_leaving_node_gives_up_its_queued_unit(run: Run, leaving: Leaving) -> None:
    begun = run.assign()
    with inbox_of(run, leaving=leaving) as assignment_watcher:
        seen = list[Attempt]()
        assignment_watcher.on_queued = seen.append
        assert assignment_watcher.next() == begun
        queued = run.assign(config_id="d", behind=begun.token, second=True)
        wait_for(assignment_watcher.waits)
        wait_for(lambda: seen == [queued])
        leaving.ask(7.0)
        assert assignment_watcher.next() is None
        assignment_watcher.give_up()
        assert run.ledger.assignments("n") == [begun]
        node = run.ledger.node("n")
        assert node is not None
        assert node.drain is not None, "the history says why"


def test_an_event_read_twice_after_a_compaction_is_returned_once() -> None:
    class Forgetful(MemoryStore):
        """Its first watches of assignments show a change, and then say that it is compacted."""

        ends = 3

        def watch(self, prefix: str, start: int) -> MemoryWatch:
            return ForgetfulWatch(self, prefix, start)

    class ForgetfulWatch(MemoryWatch):
        def next(self, timeout: float | None = None):  # type: ignore[no-untyped-def]
            store = self._store
            assert isinstance(store, Forgetful)
            if "/assign/" in self._prefix and store.ends:
                store.ends -= 1
                raise Compacted("gone")
            return super().next(timeout)

    run = Run(Forgetful())
    first = run.assign()
    with inbox_of(run) as assignment_watcher:
        assert assignment_watcher.next() == first
        run.fail(first)
        second = run.assign()
        assert assignment_watcher.next() == second
    assert run.store.ends == 0  # type: ignore[attr-defined]


def test_foreign_values_are_reported_and_skipped(leaving: Leaving) -> None:
    """An assignment, a registration and an outcome; the leader puts them right."""
    run, reported = Run(), list[ForeignValue]()
    ledger, keys = Ledger(run.store, "r", unreadable=reported.append), run.ledger.keys
    with AssignmentWatcher(ledger, "n", BOOT, leaving) as assignment_watcher:
        for key in (keys.assign("n"), keys.outcome):
            run.store.txn([], [Put(key, b'{"v":99,"kind":"Attempt"}')])
            run.store.txn([], [Delete(key)])
        attempt = run.assign()
        assert assignment_watcher.next() == attempt
        run.fail(attempt)
        run.store.txn([], [Put(keys.node("n"), b"half")])
        assert run.leader.end_run("finished")
        assert assignment_watcher.next() is None
        wait_for(lambda: len(reported) >= 3, "three reports")
    assert {
        name for name in (keys.assign("n"), keys.outcome, keys.node("n")) for e in reported if name in str(e)
    }
    assert any("version 99" in str(error) for error in reported)


def test_a_node_drained_by_hand_starts_leaving_and_has_no_next_unit(
    run: Run, assignment_watcher: AssignmentWatcher, leaving: Leaving
) -> None:
    assert run.ledger.drain("n", 7.0)
    assert assignment_watcher.next() is None
    assert leaving.asked
    assert 5.0 < leaving.left <= 7.0


def test_another_node_of_the_same_name_is_not_drained(run: Run, leaving: Leaving) -> None:
    """A zombie that is asked to leave after its name was taken."""
    with AssignmentWatcher(run.ledger, "n", "older boot", leaving) as assignment_watcher:
        leaving.ask(7.0)
        assert assignment_watcher.next() is None
    assert run.ledger.node("n") == run.nodes["n"]
    run.ledger.drain("n", 7.0)
    other = Leaving(SystemClock())
    with AssignmentWatcher(run.ledger, "n", "older boot", other) as assignment_watcher:
        run.assign()
        assert assignment_watcher.next() is not None
        assert not other.asked


def test_an_idle_rank_leaves_also_while_the_store_is_away(leaving: Leaving) -> None:
    class Away(MemoryStore):
        away = False

        def get(self, key: str) -> KeyValue | None:
            if self.away:
                raise StoreUnavailable("away for 10 s")
            return super().get(key)

    store = Away()
    run = Run(store)
    with inbox_of(run, leaving=leaving) as assignment_watcher:
        store.away = True
        leaving.ask(7.0)
        assert assignment_watcher.next() is None


def test_an_unsigned_assignment_is_removed_and_done_by_nobody(leaving: Leaving) -> None:
    store, key = MemoryStore(), RunKey(b"k" * 32)
    run = Run(store, key)
    forged = encode(Attempt(Unit("evil", 0, 0), "n", run.nodes["n"].registration, 1)).encode()
    keys = run.ledger.keys
    store.txn([], [Put(keys.assign("n"), forged)])
    with AssignmentWatcher(run.ledger, "n", BOOT, leaving) as assignment_watcher:
        for _ in range(2):  # it was there before, and comes again
            wait_for(lambda: store.get(keys.assign("n")) is None)
            attempt = run.assign()
            assert assignment_watcher.next() == attempt
            run.fail(attempt)
            store.txn([], [Put(keys.outcome, b"finished")])
            wait_for(lambda: store.get(keys.outcome) is None)
            node = store.get(keys.node("n"))
            assert node is not None
            store.txn(
                [], [Put(keys.node("n"), encode(replace(run.nodes["n"], drain=0.0)).encode(), node.lease)]
            )
            store.txn([], [Put(keys.node("n"), node.value, node.lease)])
            store.txn([], [Put(keys.assign("n"), forged)])
    assert not leaving.asked
