"""A node's registration under a store that comes and goes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from cerebro_elastic.core.values import Attempt, Config, FailureKind, Node, Plan, Spec, Unit
from cerebro_elastic.errors import StoreUnavailable
from cerebro_elastic.logs import EventLog
from cerebro_elastic.rendezvous.registration import Registration
from cerebro_elastic.store.ledger import Ledger
from cerebro_elastic.store.memory import MemoryStore
from cerebro_elastic.testing.world import HandClock

SOON = 10.0


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Away(MemoryStore):
    """A store that can be out of reach. Its leases do not end meanwhile, as etcd's do not when it is
    etcd itself that was away."""

    def __init__(self) -> None:
        super().__init__(HandClock())
        self.away = False
        self.refusals = threading.Semaphore(0)

    def _reach(self) -> None:
        if self.away:
            self.refusals.release()
            time.sleep(0.01)  # as patience is, for this one
            raise StoreUnavailable("away")

    def get(self, key):  # type: ignore[no-untyped-def]
        self._reach()
        return super().get(key)

    def grant(self, ttl: float) -> int:
        self._reach()
        return super().grant(ttl)

    def keep(self, lease: int) -> float:
        self._reach()
        return super().keep(lease)

    def revoke(self, lease: int) -> None:
        self._reach()
        super().revoke(lease)


@pytest.fixture
def ledger() -> Ledger:
    made = Ledger(Away(), "r")
    made.open(Spec(Plan("r", 1, 1), {}, "", "", "", "", "", "", ""))
    return made


@contextmanager
def registered(ledger: Ledger, ttl: float = 30.0) -> Iterator[Registration]:
    registration = Registration(ledger, Node("n", "host"), ttl, EventLog())
    try:
        yield registration
    finally:
        registration.close()


def assign(ledger: Ledger, registration: Registration) -> None:
    leader = ledger.lead("me", ledger.store.grant(30))
    assert leader is not None
    revision = ledger.create_config(Config("c", {}), leader)
    assert revision is not None
    attempt = Attempt(Unit("c", 0, 0), "n", registration.node.registration, revision)
    assert ledger.assign(attempt, leader) is not None


def test_it_lasts_from_the_start_to_the_close(ledger: Ledger) -> None:
    with registered(ledger) as registration:
        assert ledger.node("n") == registration.node
    assert ledger.node("n") is None
    registration.close()


def test_it_is_willing_while_the_store_is_away_and_leaks_nothing(ledger: Ledger) -> None:
    """Each try that fails half-way ends its lease's threads; the room is checked after the test."""
    store = ledger.store
    assert isinstance(store, Away)
    with registered(ledger, ttl=1.0) as registration:
        before = registration.node
        store.away = True
        wait_for(registration._keeper.lost.is_set)
        for _ in range(5):
            assert store.refusals.acquire(timeout=SOON)
        store.away = False
        wait_for(lambda: (ledger.node("n") or before).registration > before.registration)
    assert ledger.node("n") is None


def test_a_half_made_registration_keeps_no_lease() -> None:
    class HalfAway(Away):
        def txn(self, *_: object):  # type: ignore[no-untyped-def]
            raise StoreUnavailable("away")

    store, before = HalfAway(), threading.active_count()
    with pytest.raises(StoreUnavailable):
        Registration(Ledger(store, "r"), Node("n", "host"), 30.0, EventLog())
    assert threading.active_count() == before
    assert "0 leases" in repr(store)


def test_dead_ranks_fail_their_unit_and_the_node_registers_anew(ledger: Ledger) -> None:
    with registered(ledger) as registration:
        before = registration.node
        assign(ledger, registration)
        registration.renew(patience=SOON)
        assert ledger.assignment("n") is None
        config = ledger.config("c")
        assert config is not None
        assert [failure.kind for failure in config.failures] == [FailureKind.CRASH]
        assert registration.node.registration > before.registration


def test_a_rank_that_ended_while_the_store_was_away_did_not_die_of_its_unit(ledger: Ledger) -> None:
    store = ledger.store
    assert isinstance(store, Away)
    with registered(ledger, ttl=1.0) as registration:
        assign(ledger, registration)
        store.away = True
        wait_for(registration._keeper.lost.is_set)
        renewing = threading.Thread(target=registration.renew, args=(SOON,))
        renewing.start()
        for _ in range(3):
            assert store.refusals.acquire(timeout=SOON)
        store.away = False
        renewing.join(SOON)
        config = ledger.config("c")
        assert config is not None
        assert config.failures == ()
        assert ledger.node("n") == registration.node


def test_renewing_gives_up_after_its_patience(ledger: Ledger) -> None:
    store = ledger.store
    assert isinstance(store, Away)
    with registered(ledger) as registration:
        store.away = True
        with pytest.raises(StoreUnavailable):
            registration.renew(patience=0.05)
        store.away = False
        registration.renew(patience=SOON)
        assert ledger.node("n") == registration.node
