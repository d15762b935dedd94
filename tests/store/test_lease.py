"""A lease is kept by deadline, even if the store fails meanwhile."""

from __future__ import annotations

import threading
from contextlib import closing
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from cerebro_elastic.errors import StoreRefused, StoreUnavailable
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.client.lease import LeaseKeeper, PacketCheck
from support.memory_store import MemoryStore
from support.store_contract import put
from support.waiting import SOON


class FaultyStore(MemoryStore):
    """A store whose ``keep`` can hang or fail, and which counts the renewals that came through."""

    def __init__(self) -> None:
        super().__init__()
        self.fault: Exception | None = None
        self.way = threading.Event()
        self.way.set()
        self.renewed = threading.Semaphore(0)

    def keep(self, lease: int) -> float:
        self.way.wait(SOON)
        if self.fault is not None:
            raise self.fault
        left = super().keep(lease)
        self.renewed.release()
        return left


def test_a_kept_lease_outlives_its_ttl_and_ends_with_the_keeper(
    etcd: EmbeddedEtcd, store_prefix: str
) -> None:
    with closing(EtcdStore(etcd.settings)) as store:
        with LeaseKeeper(store, ttl=1.0) as keeper:
            start = put(store, store_prefix + "x", b"", keeper.lease)
            with store.watch(store_prefix, start + 1) as watch:
                assert watch.next(timeout=1.8) is None
            assert not keeper.lost.is_set()
        assert store.get(store_prefix + "x") is None
        assert not keeper.lost.is_set()
        assert "revoked" in repr(keeper)


def test_a_lease_that_the_store_has_ended_is_lost_at_once() -> None:
    store = FaultyStore()
    with LeaseKeeper(store, ttl=1.0) as keeper:
        store.revoke(keeper.lease)
        assert keeper.lost.wait(SOON)
        assert "lost" in repr(keeper)


def test_a_hanging_renewal_does_not_hide_the_deadline() -> None:
    store = FaultyStore()
    store.way.clear()
    with LeaseKeeper(store, ttl=0.9) as keeper:  # it has 0.6 s to send the renewal
        assert keeper.lost.wait(SOON)
        # The renewal comes through in the end, but what is lost stays lost.
        store.way.set()
        assert store.renewed.acquire(timeout=SOON)
        assert keeper.lost.is_set()


@pytest.mark.parametrize("fault", [StoreUnavailable("away"), StoreRefused("no leader")], ids=str)
def test_an_unreachable_store_is_retried_until_the_deadline(fault: Exception) -> None:
    store = FaultyStore()
    store.fault = fault
    with LeaseKeeper(store, ttl=0.2) as keeper:
        assert keeper.lost.wait(SOON)
    store.fault = None
    with LeaseKeeper(store, ttl=0.2, check=Mock(side_effect=fault)) as keeper:
        assert keeper.lost.wait(SOON), "it would be renewed, and be of no use"
    store.fault = StoreUnavailable("away for a while")
    with LeaseKeeper(store, ttl=5.0) as keeper:
        store.fault = None
        assert store.renewed.acquire(timeout=SOON)
        assert not keeper.lost.is_set()


def test_a_store_that_is_slow_loses_no_packets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease of 10 s is renewed in time though each exchange takes 15 s: its packets come through."""
    now, problems, exchanged = 0.0, list[StoreUnavailable](), threading.Semaphore(0)
    monkeypatch.setattr("cerebro_elastic.store.client.lease.time", SimpleNamespace(monotonic=lambda: now))

    def exchange() -> None:
        nonlocal now
        began.wait(SOON)
        now += 0.015
        try:
            check()
        except StoreUnavailable as error:
            problems.append(error)
        exchanged.release()

    began = threading.Event()
    with closing(PacketCheck(exchange, ttl=0.01)) as check:
        began.set()
        for _ in range(3):
            assert exchanged.acquire(timeout=SOON)
    assert not problems
