"""MemoryStore keeps the contract, by an injected clock."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cerebro_elastic.store.client.base import ChangeBatch, Put, Store, Watch, absent
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

    def test_leases_end_in_the_order_of_their_deadlines(
        self, store: Store, clock: HandClock, prefix: str
    ) -> None:
        late, early = store.grant(20), store.grant(10)
        start = store.txn([], [Put(prefix + "late", b"", late), Put(prefix + "early", b"", early)]).revision
        clock.sleep(30)
        watch = store.watch(prefix, start + 1)
        assert [expect(watch).changes[0].key for _ in range(2)] == [prefix + "early", prefix + "late"]

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

    def test_compaction_is_up_to_the_present(self, store: MemoryStore, prefix: str) -> None:
        revision = put(store, prefix)
        with pytest.raises(ValueError, match=f"the store is at {revision}"):
            store.compact(revision + 1)
        store.compact(revision)
        assert store.watch(prefix, revision).next(0) is not None

    def test_reprs_show_the_state(self, store: MemoryStore, prefix: str) -> None:
        put(store, prefix, b"", store.grant(1))
        assert repr(store) == "<MemoryStore at revision 2: 1 keys, 1 leases>"
        watch = store.watch("/a", 2)
        assert repr(watch) == "<MemoryWatch of '/a' at revision 2>"
        watch.close()
        assert repr(watch) == "<MemoryWatch of '/a' closed>"
