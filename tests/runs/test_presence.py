"""A machine is present in a run until it leaves: its etcd waits for one that has only fallen silent."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext

import pytest

from cerebro_elastic import RunResult
from cerebro_elastic.errors import RunError
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.runs.start import etcd_server, participate
from cerebro_elastic.runs.start.host import host
from cerebro_elastic.runs.start.participate import PRESENT_SECONDS, present
from cerebro_elastic.runs.terminal_view import Watcher
from cerebro_elastic.store.client.base import Put
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.client.retrying import PATIENCE
from cerebro_elastic.store.ledger.record import Record
from support.memory_store import MemoryStore
from support.waiting import SOON


class Leases(MemoryStore):
    """A store that reports each lease that is granted."""

    def __init__(self) -> None:
        super().__init__()
        self.granted: list[int] = []
        self.next = threading.Semaphore(0)

    def grant(self, ttl: float) -> int:
        lease = super().grant(ttl)
        self.granted.append(lease)
        return lease

    def txn(self, *words: object) -> object:  # type: ignore[override]
        result = super().txn(*words)  # type: ignore[arg-type]
        self.next.release()
        return result


def hosts(record: Record) -> int:
    return len(record.store.range(record.keys.hosts).items)


def test_a_machine_that_leaves_is_gone_at_once() -> None:
    record = Record(MemoryStore(), "r")
    with present(record):
        assert hosts(record) == 1
    assert hosts(record) == 0


def test_a_machine_that_lost_its_lease_registers_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(participate, "_LOOK_SECONDS", 0.01)
    store = Leases()
    record = Record(store, "r")
    with present(record, seconds=0.3):
        assert store.next.acquire(timeout=SOON)
        store.revoke(store.granted[0])
        assert store.next.acquire(timeout=SOON), "it registers again"
        assert hosts(record) == 1
    assert hosts(record) == 0


@pytest.mark.parametrize("ended", [True, False])
def test_an_etcd_waits_for_silent_machines_until_the_run_has_ended(
    ended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = Record(MemoryStore(), "r")
    silent, looks = record.store.grant(PRESENT_SECONDS), 0

    def later(seconds: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            record.store.txn([], [Put(record.keys.hosts + "a", b"{}", silent)])
            if ended:
                record.store.txn([], [Put(record.keys.outcome, b"{}")])
        if looks * seconds == PATIENCE:
            record.store.revoke(silent)

    monkeypatch.setattr(etcd_server.time, "sleep", later)
    assert etcd_server._until_alone(record, lambda: None, print) is ended
    waited = looks * etcd_server._POLL
    assert (waited < PATIENCE) is ended
    assert waited >= etcd_server._SILENT


@pytest.mark.parametrize("same", [True, False])
def test_an_etcd_ends_with_the_hosts_of_a_run_that_cerebro_run_has_ended(
    same: bool, recorded: RunResult, etcd: EmbeddedEtcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a host has the record of it, or another recipe, and leaves before it has joined: it has to report
    to the etcd of its job that it was there."""
    monkeypatch.setattr("cerebro_elastic.runs.start.host._REPORT_SECONDS", 1.0)
    monkeypatch.setattr(etcd_server, "_LINGER", 2.0)
    said, recipe = list[str](), load_recipe(recorded.recipe, **({} if same else {"epochs": 3}))
    with closing(EtcdStore(etcd.settings)) as store, ThreadPoolExecutor(1) as pool:
        serving = pool.submit(etcd_server._until_alone, Record(store, recorded.run), lambda: None, print)
        with (
            nullcontext() if same else pytest.raises(RunError, match="with another recipe:\n  epochs: 2 -> 3")
        ):
            taken = host(
                recipe,
                run_id=recorded.run,
                home=recorded.folder.path.parent,
                store=etcd.settings,
                watcher=Watcher(say=said.append),
            )
            assert taken.leaderboard == recorded.leaderboard
        assert serving.result(60) is same
    assert any(line.startswith("run 'recorded' has ended; to go on") for line in said) is same
