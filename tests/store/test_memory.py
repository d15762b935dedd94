"""MemoryStore keeps the contract, by an injected clock."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cerebro_elastic.store.client.base import ChangeBatch, Store, Watch, absent
from support.clocks import HandClock
from support.memory_store import MemoryStore
from support.store_contract import StoreContract, expect, put


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def clock(self) -> HandClock:
        return HandClock()

    @pytest.fixture
    def store(self, clock: HandClock) -> Store:  # type: ignore[override]
        self.clock = clock
        return MemoryStore(clock)

    def compact(self, store: Store, revision: int) -> None:
        assert isinstance(store, MemoryStore)
        store.compact(revision)

    def elapse(self, watch: Watch, seconds: float) -> ChangeBatch | None:
        self.clock.sleep(seconds)
        return watch.next(timeout=0)

    def test_a_blocked_next_sees_a_lease_end_on_the_real_clock(self, prefix: str) -> None:
        store = MemoryStore()
        start = put(store, prefix + "x", b"", store.grant(0.1))
        assert expect(store.watch(prefix, start + 1)).changes[0].item is None

    @pytest.mark.parametrize(
        "see",
        [
            lambda store, prefix: store.get(prefix + "x") is None,
            lambda store, prefix: store.range(prefix).items == (),
            lambda store, prefix: store.txn([absent(prefix + "x")], []).succeeded,
        ],
        ids=["get", "range", "txn"],
    )
    def test_every_verb_sees_that_a_lease_has_ended(
        self, store: Store, clock: HandClock, prefix: str, see: Callable[[Store, str], bool]
    ) -> None:
        put(store, prefix + "x", b"", store.grant(1))
        assert not see(store, prefix)
        clock.sleep(1)
        assert see(store, prefix)
