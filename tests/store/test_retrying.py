"""A store that is waited for: verbs and watches over a store that comes and goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from cerebro_elastic.errors import StoreFull, StoreUnavailable, TxnUnknown
from cerebro_elastic.store.client.base import ChangeBatch, Compare, Op, Put, TxnResult, Watch
from cerebro_elastic.store.client.retrying import RetryingStore
from cerebro_elastic.system.logs import EventLog
from support.clocks import HandClock
from support.memory_store import MemoryStore, MemoryWatch
from support.waiting import SOON

LONG = 600.0


class Said(EventLog):
    """What was logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def info(self, event: str, **_fields: object) -> None:
        self.lines.append(event)

    warning = info


class Away(MemoryStore):
    """Out of reach for the next ``tries`` verbs, or ``full``."""

    tries = 0
    full = False

    def __getattribute__(self, name: str) -> Any:
        if name in ("get", "range", "grant", "keep", "txn") and self.tries:
            self.tries -= 1
            raise StoreUnavailable("etcd did not answer for 10 s")
        return super().__getattribute__(name)

    def txn(self, compares: Sequence[Compare], ops: Sequence[Op]) -> TxnResult:
        if self.full:
            raise StoreFull("no space in etcd")
        return super().txn(compares, ops)

    def watch(self, prefix: str, start: int) -> MemoryWatch:
        return AwayWatch(self, prefix, start)


class AwayWatch(MemoryWatch):
    def next(self, timeout: float | None = None) -> ChangeBatch | None:
        self._store.keep  # noqa: B018  # if it can be reached
        return super().next(timeout)


@pytest.fixture
def away() -> Away:
    return Away()


@pytest.fixture
def log() -> Said:
    return Said()


@pytest.fixture
def store(away: Away, log: Said) -> RetryingStore:
    return RetryingStore(away, LONG, log)


@pytest.mark.parametrize(
    "verb",
    [
        lambda store: store.get("k"),
        lambda store: store.range("k"),
        lambda store: store.grant(30),
        lambda store: store.txn([], [Put("k", b"v")]),
    ],
)
def test_a_verb_waits_and_says_so_once(
    store: RetryingStore, away: Away, log: Said, verb: Callable[[RetryingStore], object]
) -> None:
    away.tries = 4
    verb(store)
    assert log.lines == ["waiting for the store", "no longer waiting for the store"]
    verb(store)
    assert len(log.lines) == 2


def test_patience_ends_with_the_reason_and_what_to_do(away: Away, log: Said) -> None:
    """By the monotonic clock alone: the wall clock jumps at every try."""

    class Passing(HandClock):
        def now(self) -> float:
            self.time += 100.0
            self.jumped = 1e9 - self.jumped
            return self.time

    away.tries = 1000
    with pytest.raises(
        StoreUnavailable, match=r"did not answer for 10 s; waited 600 s .*start the node again"
    ):
        RetryingStore(away, LONG, log, Passing()).get("k")
    assert 990 <= away.tries < 999


def test_a_full_store_is_waited_for_until_there_is_room(store: RetryingStore, away: Away, log: Said) -> None:
    away.full = True
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(store.txn, [], [Put("k", b"v")])
        while not log.lines:
            assert not writing.done()
        assert store.get("k") is None, "reads go on"
        away.full = False
        assert writing.result(SOON).succeeded
    away.full = True
    with pytest.raises(StoreFull):
        RetryingStore(away, 0.0, log).txn([], [Put("k", b"v")])


def test_a_transaction_without_an_answer_is_not_sent_again(log: Said) -> None:
    sent = []

    class Mute(Away):
        def txn(self, _compares: Sequence[Compare], ops: Sequence[Op]) -> TxnResult:
            sent.append(ops)
            raise TxnUnknown("no answer")

    with pytest.raises(TxnUnknown):
        RetryingStore(Mute(), LONG, log).txn([], [Put("k", b"v")])
    assert len(sent) == 1


def test_a_watch_goes_on_where_it_stood(store: RetryingStore, away: Away) -> None:
    revisions = [store.txn([], [Put("k", b"%d" % i)]).revision for i in range(3)]
    with store.watch("k", revisions[0]) as watch:
        assert revision_of(watch) == revisions[0]
        away.tries = 3
        assert [revision_of(watch), revision_of(watch)] == revisions[1:]
        assert watch.next(0) is None


def revision_of(watch: Watch) -> int:
    batch = watch.next(SOON)
    assert batch is not None
    return batch.revision


def test_closing_wakes_waiting_callers(store: RetryingStore, away: Away, log: Said) -> None:
    away.tries = 10**9
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(store.get, "k")
        while not log.lines:
            assert not waiting.done()
        store.close()
        with pytest.raises(StoreUnavailable):
            waiting.result(SOON)


def test_a_lease_has_its_own_time(store: RetryingStore, away: Away, log: Said) -> None:
    lease = store.grant(30)
    away.tries = 1
    with pytest.raises(StoreUnavailable):
        store.keep(lease)
    assert store.keep(lease) == 30
    store.revoke(lease)
    assert log.lines == []
