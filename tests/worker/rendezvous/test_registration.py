"""A node's registration under a store that comes and goes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from cerebro_elastic.core.model.attempts import Attempt, FailureKind
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.core.model.units import Unit
from cerebro_elastic.errors import LeaseLost, NameTaken, StoreUnavailable
from cerebro_elastic.system.logs import EventLog
from cerebro_elastic.worker.rendezvous.heartbeats import RankFailure
from cerebro_elastic.worker.rendezvous.registration import Registration
from support.clocks import HandClock
from support.ledger import Leader, Ledger
from support.memory_store import MemoryStore
from support.waiting import SOON, wait_for

GONE = RankFailure(FailureKind.CRASH, "gone")


class Away(MemoryStore):
    """A store that can be out of reach. Its leases do not end meanwhile, as etcd's do not when it is
    etcd itself that was away."""

    def __init__(self) -> None:
        self.clock = HandClock()
        super().__init__(self.clock)
        self.away = self.narrow = False
        self.keeps_nothing = False
        self.refusals = threading.Semaphore(0)

    def _reach(self) -> None:
        if self.away:
            self.refusals.release()
            time.sleep(0.01)  # as patience is, for this one
            raise StoreUnavailable("away")

    def get(self, key):  # type: ignore[no-untyped-def]
        self._reach()
        if self.narrow and (len(key) > 1500 or key.endswith("/spec")):
            raise StoreUnavailable("larger packets are lost")
        return super().get(key)

    def grant(self, ttl: float) -> int:
        self._reach()
        return super().grant(ttl)

    def keep(self, lease: int) -> float:
        self._reach()
        if self.keeps_nothing:
            self.refusals.release()
            raise StoreUnavailable("away")
        return super().keep(lease)

    def revoke(self, lease: int) -> None:
        self._reach()
        super().revoke(lease)


@pytest.fixture
def ledger() -> Ledger:
    made = Ledger(Away(), "r")
    made.open_run(Spec(Plan("r", 1, 1), {}, "", "", "", "", {}, "", ""))
    return made


@contextmanager
def registered(ledger: Ledger, ttl: float = 30.0) -> Iterator[Registration]:
    registration = Registration(ledger, Node("n", "host"), ttl, EventLog())
    try:
        yield registration
    finally:
        registration.close()


def assign(ledger: Ledger, registration: Registration, config: str = "c") -> Attempt:
    ledger.lead("me", ledger.store.grant(30))
    leads = ledger.store.get(ledger.keys.leader)
    assert leads is not None
    leader = Leader(ledger, leads.create_revision)
    revision = leader.create_config(Config(config, {}))
    assert revision is not None
    attempt = Attempt(Unit(config, 0, 0), "n", registration.node.registration, revision)
    token = leader.assign(attempt)
    assert token is not None
    return replace(attempt, token=token)


def test_it_lasts_from_the_start_to_the_close(ledger: Ledger) -> None:
    with registered(ledger) as registration:
        assert ledger.node("n") == registration.node
    assert ledger.node("n") is None
    registration.close()


class Cut(Away):
    """A store whose first transaction is answered only when the lease that it names has ended."""

    cut = True

    def txn(self, compares, ops):  # type: ignore[no-untyped-def]
        if self.cut and any(getattr(op, "lease", 0) for op in ops):
            self.cut = False
            raise LeaseLost("it has ended during the cut")
        return super().txn(compares, ops)


def test_a_cut_while_a_node_joins_is_waited_for() -> None:
    store = Cut()
    ledger = Ledger(store, "r")
    ledger.open_run(Spec(Plan("r", 1, 1), {}, "", "", "", "", {}, "", ""))
    store.cut, store.away = True, True
    with pytest.raises(StoreUnavailable):
        Registration(ledger, Node("n", "host"), 30.0, EventLog(), clock=HandClock())
    threading.Timer(0.3, setattr, [store, "away", False]).start()
    registration = Registration(ledger, Node("n", "host"), 30.0, EventLog(), patience=SOON)
    assert not store.cut
    assert ledger.node("n") == registration.node
    registration.close()


def lose(ledger: Ledger, registration: Registration) -> None:
    """The lease ends: its time was over before the agent came round to renew it."""
    ledger.store.revoke(registration._lease)


def test_a_lost_lease_is_a_new_registration(ledger: Ledger) -> None:
    with registered(ledger, ttl=1.0) as registration:
        before = registration.node
        assert before.starting
        lose(ledger, registration)
        wait_for(lambda: (ledger.node("n") or before).registration > before.registration)
        after = ledger.node("n")
        assert after is not None
        assert not after.starting, "its ranks go on"
    assert ledger.node("n") is None


@pytest.mark.parametrize("trouble", ["away", "keeps_nothing"])
def test_a_store_that_was_away_is_no_lost_lease(ledger: Ledger, trouble: str) -> None:
    """Or that could be asked for anything but to renew it. The lease is still there when the store is: the
    same registration goes on, its unit may commit."""
    store = ledger.store.bare
    assert isinstance(store, Away)
    with registered(ledger, ttl=1.0) as registration:
        before = ledger.node("n")
        setattr(store, trouble, True)
        for _ in range(5):
            assert store.refusals.acquire(timeout=SOON)
        setattr(store, trouble, False)
        wait_for(lambda: not registration._away)
        assert ledger.node("n") == before == registration.node


def test_dead_ranks_fail_their_unit_and_the_node_registers_anew(ledger: Ledger) -> None:
    with registered(ledger) as registration:
        before = registration.node
        assign(ledger, registration)
        registration.renew(RankFailure(FailureKind.HANG, "no progress"), SOON)
        assert ledger.assignment("n") is None
        config = ledger.config("c")
        assert config is not None
        assert [(failure.kind, failure.story) for failure in config.failures] == [
            (FailureKind.HANG, "no progress")
        ]
        assert registration.node.registration > before.registration


@pytest.mark.parametrize(("saving_hangs", "to_blame"), [(None, 1), (True, 0), (False, 1)])
def test_of_two_units_that_died_one_is_to_blame_and_the_other_is_lost(
    ledger: Ledger, saving_hangs: bool | None, to_blame: int
) -> None:
    """The one in training, unless it is known that the other one's save hangs."""
    with registered(ledger) as registration:
        saving = ledger.mark_trained(assign(ledger, registration))
        assert saving is not None
        training = assign(ledger, registration, "c1")
        hung = saving.token if saving_hangs else training.token
        registration.renew(RankFailure(FailureKind.HANG, "why", None if saving_hangs is None else hung), SOON)
        failures = [config.failures for config in ledger.state().configs.values()]
        assert [len(each) for each in failures] == [1 - to_blame, to_blame]
        state = ledger.state()
        (left,) = state.underway()
        assert left.unit.config == ("c1", "c")[to_blame]
        assert not state.may_report(left), "the leader withdraws it"


def test_a_draining_node_still_drains_when_its_ranks_are_restarted(ledger: Ledger) -> None:
    with registered(ledger) as registration:
        assert ledger.drain("n", 7.0)
        registration.renew(GONE, SOON)
        node = ledger.node("n")
        assert node is not None
        assert node.drain == 7.0


def test_the_unit_of_a_registration_that_was_lost_is_not_blamed(ledger: Ledger) -> None:
    """It could not have committed either; the controller takes it back."""
    with registered(ledger) as registration:
        assign(ledger, registration)
        lose(ledger, registration)
        registration.renew(GONE, SOON)
        config = ledger.config("c")
        assert config is not None
        assert config.failures == ()
        assert ledger.node("n") == registration.node


def test_renewing_waits_for_the_store_and_gives_up_after_its_patience(ledger: Ledger) -> None:
    store = ledger.store.bare
    assert isinstance(store, Away)
    with registered(ledger) as registration:
        store.away = True
        with pytest.raises(StoreUnavailable):
            registration.renew(GONE, patience=0.05)
        renewing = threading.Thread(target=registration.renew, args=(GONE, SOON))
        renewing.start()
        assert store.refusals.acquire(timeout=SOON)
        store.away = False
        renewing.join(SOON)
        assert ledger.node("n") == registration.node


def other(boot: str = "another") -> Node:
    return Node("n", "elsewhere", boot=boot)


def test_the_name_of_a_living_node_is_refused(ledger: Ledger) -> None:
    """Its lease is kept for longer than that of a dead one would last, whatever the wall clock says."""

    class Jumping(HandClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            self.jumped = 1e9 - self.jumped

    clock = Jumping()
    with registered(ledger) as registration:
        with pytest.raises(NameTaken, match="alive on host: give this one another name"):
            Registration(ledger, other(), 30.0, EventLog(), clock=clock)
        assert 130.0 < clock.now() < 135.0
        assert ledger.node("n") == registration.node


def test_the_name_of_a_dead_node_is_taken_when_its_lease_ends(ledger: Ledger) -> None:
    """As after a crash: nobody revokes, nobody keeps."""
    lease = ledger.store.grant(30)
    dead = ledger.register(Node("n", "host", boot="dead"), lease)
    ending = threading.Timer(0.3, ledger.store.revoke, (lease,))
    ending.start()
    registration = Registration(ledger, other(), 30.0, EventLog())
    try:
        assert registration.node.registration > dead.registration
        assert ledger.node("n") == registration.node
    finally:
        registration.close()
        ending.join()


def test_a_zombie_whose_name_was_taken_meanwhile_says_so_and_ends(ledger: Ledger) -> None:
    errors: list[NameTaken] = []
    zombie = Registration(ledger, Node("n", "host"), 1.0, EventLog(), unable=errors.append)
    try:
        lease = ledger.store.grant(30)
        with zombie._lock:  # asleep
            lose(ledger, zombie)
            heir = ledger.register(other(), lease)
        wait_for(lambda: errors)
        assert ledger.node("n") == heir
    finally:
        zombie.close()
    assert ledger.node("n") == heir, "only its own registration goes with it"
