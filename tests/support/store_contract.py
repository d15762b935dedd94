"""The contract of every ``Store``, as a class of tests.

Example::

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self) -> Iterator[Store]:
            yield MyStore()

        def compact(self, store: Store, revision: int) -> None:
            store.forget(revision)
"""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from cerebro_elastic.errors import Compacted, LeaseLost, Rewound, StoreRefused
from cerebro_elastic.store.client.base import (
    MAX_BYTES,
    MAX_OPS,
    Change,
    ChangeBatch,
    Compare,
    Delete,
    KeyValue,
    Op,
    Put,
    Store,
    Watch,
    absent,
    at_revision,
    created_at,
)
from support.waiting import SOON

TTL = 1.0
"""Time to live of the leases in these tests, in seconds."""


def put(store: Store, key: str, value: bytes = b"", lease: int = 0) -> int:
    """Write ``key`` unconditionally, and return the revision of the change."""
    return store.txn([], [Put(key, value, lease)]).revision


def delete(store: Store, key: str) -> int:
    """Remove ``key`` unconditionally, and return the revision of the change."""
    return store.txn([], [Delete(key)]).revision


def expect(watch: Watch) -> ChangeBatch:
    """Wait for the next batch, which must come soon."""
    batch = watch.next(timeout=SOON)
    assert batch is not None, f"{watch} delivered nothing for {SOON} s"
    return batch


class StoreContract:
    """Tests of a store. Each works under a ``prefix`` of its own.

    A subclass overrides the fixture ``store`` and the method ``compact``. A store with an injected clock may
    override ``elapse``, to be faster than real time.
    """

    @pytest.fixture
    def store(self) -> Iterator[Store]:
        """The store under test."""
        raise NotImplementedError("override the fixture `store` with one that gives the store under test")

    @pytest.fixture
    def prefix(self) -> str:
        """The prefix of all keys of one test."""
        return f"/contract/{uuid.uuid4().hex}/"

    def compact(self, store: Store, revision: int) -> None:
        """Make the store forget the changes before ``revision``."""
        raise NotImplementedError("override `compact` with what makes this store forget its history")

    def elapse(self, watch: Watch, seconds: float) -> ChangeBatch | None:
        """Let ``seconds`` pass on the store's clock, and return what ``watch`` delivers in that time."""
        return watch.next(timeout=seconds)

    # -- keys and values

    def test_an_absent_key_is_none(self, store: Store, prefix: str) -> None:
        assert store.get(prefix + "x") is None

    def test_a_key_knows_its_revisions(self, store: Store, prefix: str) -> None:
        created = put(store, prefix + "x", b"1")
        changed = put(store, prefix + "x", b"2")
        assert changed > created
        assert store.get(prefix + "x") == KeyValue(prefix + "x", b"2", created, changed)

    def test_a_deleted_key_begins_anew(self, store: Store, prefix: str) -> None:
        put(store, prefix + "x", b"1")
        delete(store, prefix + "x")
        assert store.get(prefix + "x") is None
        created = put(store, prefix + "x", b"2")
        assert store.get(prefix + "x") == KeyValue(prefix + "x", b"2", created, created)

    @pytest.mark.parametrize("value", [b"", b"\0", bytes(range(256)), "größer 🐕".encode(), b"x" * 200_000])
    def test_values_are_any_bytes(self, store: Store, prefix: str, value: bytes) -> None:
        revision = put(store, prefix + "x", value)
        with store.watch(prefix, revision) as watch:
            (change,) = expect(watch).changes
        assert change.item is not None
        assert store.get(prefix + "x") == change.item
        assert change.item.value == value

    @pytest.mark.parametrize("name", ["größer 🐕", "a b/c\td", 'quote"back\\slash', "\U0010ffff"])
    def test_keys_are_unicode(self, store: Store, prefix: str, name: str) -> None:
        revision = put(store, prefix + name, b"v")
        expected = KeyValue(prefix + name, b"v", revision, revision)
        assert store.get(prefix + name) == expected
        assert store.range(prefix + name).items == (expected,)
        with store.watch(prefix + name, revision) as watch:
            assert expect(watch) == ChangeBatch(revision, (Change(prefix + name, revision, expected),))

    # -- range

    def test_an_empty_range_has_a_revision(self, store: Store, prefix: str) -> None:
        revision = put(store, prefix + "x")
        empty = store.range(prefix + "none/")
        assert empty.items == ()
        assert empty.revision >= revision

    def test_range_is_by_prefix_and_sorted(self, store: Store, prefix: str) -> None:
        for name in ("ab", "b", "a", "a/2", "a/10", "Z", "ü", "z"):
            put(store, prefix + name)
        assert self.names(store, prefix) == ["Z", "a", "a/10", "a/2", "ab", "b", "z", "ü"]
        assert self.names(store, prefix, "a") == ["a", "a/10", "a/2", "ab"]
        assert self.names(store, prefix, "a/") == ["a/10", "a/2"]

    def test_the_empty_prefix_is_all_keys(self, store: Store, prefix: str) -> None:
        revision = put(store, prefix + "x")
        assert prefix + "x" in [item.key for item in store.range("").items]
        with store.watch("", revision) as watch:
            assert expect(watch).changes[0].key == prefix + "x"

    def test_a_large_range_is_of_one_revision(self, store: Store, prefix: str) -> None:
        """Writers move a pair of marks, first and last of many keys, in one transaction: a range that
        were put together from several moments would show them apart."""
        for low in range(0, 2500, 100):
            store.txn([], [Put(f"{prefix}m{k:04}", b"") for k in range(low, low + 100)])
        store.txn([], [Put(prefix + "a", b"0"), Put(prefix + "z", b"0")])
        stop = threading.Event()

        def write() -> None:
            count = 0
            while not stop.is_set():
                count += 1
                mark = str(count).encode()
                store.txn([], [Put(prefix + "a", mark), Put(prefix + "z", mark)])

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            try:
                for _ in range(5):
                    snapshot = store.range(prefix)
                    assert len(snapshot.items) == 2502
                    assert snapshot.items[0].value == snapshot.items[-1].value
                    assert max(item.mod_revision for item in snapshot.items) <= snapshot.revision
            finally:
                stop.set()
            writing.result()

    # -- fact 1: a transaction is atomic and its comparisons see one revision

    def test_all_changes_of_a_txn_bear_one_revision(self, store: Store, prefix: str) -> None:
        put(store, prefix + "old")
        result = store.txn([], [Put(prefix + "x", b"1"), Put(prefix + "y", b"2"), Delete(prefix + "old")])
        assert result.succeeded
        snapshot = store.range(prefix)
        assert [(item.key, item.mod_revision) for item in snapshot.items] == [
            (prefix + "x", result.revision),
            (prefix + "y", result.revision),
        ]

    def test_a_txn_raises_the_revision_by_one(self, store: Store, prefix: str) -> None:
        first = put(store, prefix + "x")
        assert put(store, prefix + "x") == first + 1

    @pytest.mark.parametrize(
        "failing", [absent("x"), at_revision("x", 1), created_at("x", 1), at_revision("none", 5)], ids=str
    )
    def test_one_failed_comparison_undoes_all(self, store: Store, prefix: str, failing: Compare) -> None:
        revision = put(store, prefix + "x", b"1")
        compares = [at_revision(prefix + "x", revision), self.under(prefix, failing)]
        result = store.txn(compares, [Put(prefix + "x", b"2"), Put(prefix + "y", b"2")])
        assert not result.succeeded
        assert result.revision >= revision
        assert [(item.key, item.value) for item in store.range(prefix).items] == [(prefix + "x", b"1")]

    def test_comparisons_that_hold(self, store: Store, prefix: str) -> None:
        created = put(store, prefix + "x", b"1")
        changed = put(store, prefix + "x", b"2")
        compares = [
            created_at(prefix + "x", created),
            at_revision(prefix + "x", changed),
            absent(prefix + "y"),
            at_revision(prefix + "y", 0),
        ]
        assert store.txn(compares, [Put(prefix + "y", b"")]).succeeded
        assert not store.txn(compares, [Put(prefix + "y", b"")]).succeeded

    def test_a_txn_that_changes_nothing_keeps_the_revision(self, store: Store, prefix: str) -> None:
        revision = put(store, prefix + "x")
        assert delete(store, prefix + "absent") == revision
        assert store.txn([absent(prefix + "absent")], []).revision == revision
        assert put(store, prefix + "x") == revision + 1

    @pytest.mark.parametrize(
        "ops",
        [[Put("x", b"1"), Put("x", b"2")], [Put("x", b"1"), Delete("x")], [Put("", b"1")], [Delete("")]],
        ids=str,
    )
    def test_a_senseless_txn_is_refused(self, store: Store, ops: list[Op]) -> None:
        with pytest.raises(ValueError, match=r"'x'|empty key"):
            store.txn([], ops)

    def test_as_many_operations_as_etcd_takes(self, store: Store, prefix: str) -> None:
        keys = [f"{prefix}{k}" for k in range(MAX_OPS + 1)]
        most = keys[:-1]
        assert store.txn([absent(key) for key in most], [Put(key, b"") for key in most]).succeeded
        for compares, ops in (([], keys), (keys, [])):
            with pytest.raises(StoreRefused, match=r"too many operations.*make smaller transactions"):
                store.txn([absent(key) for key in compares], [Put(key, b"") for key in ops])
        assert len(store.range(prefix).items) == MAX_OPS

    def test_as_many_bytes_as_etcd_takes(self, store: Store, prefix: str) -> None:
        put(store, prefix + "x", b"x" * (MAX_BYTES - 1000))
        half = b"x" * (MAX_BYTES // 2)
        with pytest.raises(StoreRefused, match=r"too large.*write smaller values"):
            store.txn([], [Put(prefix + "y", half), Put(prefix + "z", half)])
        assert self.names(store, prefix) == ["x"]

    def test_concurrent_counters_lose_nothing(self, store: Store, prefix: str) -> None:
        """Each writer increments a counter by compare and write. Atomicity: no increment is lost."""
        key, writers, each = prefix + "count", 4, 25
        put(store, key, b"0")

        def count_up(_: int) -> None:
            done = 0
            while done < each:
                item = store.get(key)
                assert item is not None
                up = Put(key, str(int(item.value) + 1).encode())
                done += store.txn([at_revision(key, item.mod_revision)], [up]).succeeded

        with ThreadPoolExecutor(writers) as pool:
            list(pool.map(count_up, range(writers)))
        item = store.get(key)
        assert item is not None
        assert int(item.value) == writers * each

    # -- fact 2: a watch delivers every change from its start on, in order, none twice, none left out

    def test_watch_from_a_past_revision(self, store: Store, prefix: str) -> None:
        first = put(store, prefix + "x", b"1")
        put(store, prefix + "x", b"2")
        delete(store, prefix + "x")
        with store.watch(prefix, first + 1) as watch:
            assert expect(watch).changes[0].item == KeyValue(prefix + "x", b"2", first, first + 1)
            assert expect(watch) == ChangeBatch(first + 2, (Change(prefix + "x", first + 2, None),))

    def test_watch_goes_on_into_the_future(self, store: Store, prefix: str) -> None:
        first = put(store, prefix + "x", b"1")
        with store.watch(prefix, first) as watch:
            assert expect(watch).revision == first
            for _ in range(3):
                revision = put(store, prefix + "x", b"2")
                assert expect(watch).revision == revision
            assert watch.next(timeout=0) is None

    def test_a_store_that_is_behind_the_start_is_reported(self, store: Store, prefix: str) -> None:
        """A watch from a later revision than the store's belongs to another history, and is refused."""
        now = put(store, prefix + "x", b"1")
        with store.watch(prefix, now + 2) as watch:
            for _ in range(2):
                with pytest.raises(Rewound, match="range afresh"):
                    watch.next(timeout=SOON)

    @pytest.mark.parametrize("start", [0, 1])
    def test_watch_from_the_beginning(self, store: Store, prefix: str, start: int) -> None:
        revision = put(store, prefix + "x", b"1")
        with store.watch(prefix, start) as watch:
            assert expect(watch).revision == revision

    def test_the_changes_of_one_revision_come_together(self, store: Store, prefix: str) -> None:
        start = put(store, prefix + "old")
        result = store.txn([], [*(Put(f"{prefix}{k}", b"x") for k in range(100)), Delete(prefix + "old")])
        with store.watch(prefix, start + 1) as watch:
            batch = expect(watch)
        assert batch.revision == result.revision
        assert len(batch.changes) == 101
        assert {change.revision for change in batch.changes} == {result.revision}

    def test_a_watch_sees_its_prefix_alone(self, store: Store, prefix: str) -> None:
        start = put(store, prefix + "ab", b"no")
        result = store.txn(
            [], [Put(prefix + "a/x", b"yes"), Put(prefix + "ab", b"no"), Put(prefix + "b", b"no")]
        )
        put(store, prefix + "b", b"no")
        last = put(store, prefix + "a/y", b"yes")
        with store.watch(prefix + "a/", start) as watch:
            batches = [expect(watch), expect(watch)]
            assert watch.next(timeout=0) is None
        assert [batch.revision for batch in batches] == [result.revision, last]
        assert [[change.key for change in batch.changes] for batch in batches] == [
            [prefix + "a/x"],
            [prefix + "a/y"],
        ]

    def test_watches_under_concurrent_writers_see_the_same_history(self, store: Store, prefix: str) -> None:
        writers, each = 3, 40
        start = put(store, prefix + "start")

        def write(writer: int) -> list[int]:
            return [
                store.txn([], [Put(f"{prefix}{writer}", b"%d" % k), Put(prefix + "all", b"")]).revision
                for k in range(each)
            ]

        def follow(_: int) -> list[ChangeBatch]:
            with store.watch(prefix, start + 1) as watch:
                return [expect(watch) for _ in range(writers * each)]

        with ThreadPoolExecutor(writers + 2) as pool:
            following = [pool.submit(follow, k) for k in range(2)]
            written = sorted(itertools.chain(*pool.map(write, range(writers))))
            seen = [future.result() for future in following]
        assert seen[0] == seen[1]
        assert [batch.revision for batch in seen[0]] == written
        assert all(len(batch.changes) == 2 for batch in seen[0])

    def test_range_then_watch_misses_nothing(self, store: Store, prefix: str) -> None:
        """A reader takes a snapshot, and then the changes from its revision + 1 on."""
        total = 60

        def write() -> None:
            for k in range(total):
                put(store, f"{prefix}{k % 7}", b"%d" % k)

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            snapshot = store.range(prefix)
            copy = {item.key: item for item in snapshot.items}
            writing.result()
            final = store.range(prefix)
            with store.watch(prefix, snapshot.revision + 1) as watch:
                revision = snapshot.revision
                while revision < final.revision:
                    batch = expect(watch)
                    revision = batch.revision
                    copy |= {change.key: change.item for change in batch.changes if change.item}
        assert tuple(copy[key] for key in sorted(copy)) == final.items

    def test_next_without_changes_is_none(self, store: Store, prefix: str) -> None:
        with store.watch(prefix, put(store, prefix) + 1) as watch:
            assert watch.next(timeout=0) is None
            assert watch.next(timeout=0.01) is None

    def test_close_wakes_a_blocked_next(self, store: Store, prefix: str) -> None:
        watch = store.watch(prefix, put(store, prefix) + 1)
        with ThreadPoolExecutor(1) as pool:
            blocked = pool.submit(watch.next)
            watch.close()
            assert blocked.result(timeout=SOON) is None
        assert watch.next() is None
        watch.close()

    def test_a_closed_watch_delivers_nothing_more(self, store: Store, prefix: str) -> None:
        revision = put(store, prefix + "x")
        with store.watch(prefix, revision) as watch:
            expect(watch)
        put(store, prefix + "x")
        assert watch.next(timeout=0.01) is None

    def test_a_compacted_start_is_reported(self, store: Store, prefix: str) -> None:
        first = put(store, prefix + "x", b"1")
        for _ in range(3):
            last = put(store, prefix + "x", b"2")
        self.compact(store, last)
        with store.watch(prefix, first) as watch:
            for _ in range(2):
                with pytest.raises(Compacted, match="range afresh"):
                    watch.next(timeout=SOON)
        with store.watch(prefix, last + 1) as watch:
            put(store, prefix + "x", b"3")
            assert expect(watch).revision == last + 1
        item = store.get(prefix + "x")
        assert item is not None
        assert (item.value, item.create_revision) == (b"3", first)

    # -- fact 3: a key under a lease is deleted when the lease ends, and not while it is kept alive

    def test_a_lease_that_is_not_kept_ends(self, store: Store, prefix: str) -> None:
        lease = store.grant(TTL)
        result = store.txn(
            [], [Put(prefix + "x", b"", lease), Put(prefix + "y", b"", lease), Put(prefix + "z", b"")]
        )
        with store.watch(prefix, result.revision + 1) as watch:
            batch = self.elapse(watch, SOON)
        assert batch is not None
        assert sorted(change.key for change in batch.changes) == [prefix + "x", prefix + "y"]
        assert all(change.item is None for change in batch.changes)
        assert self.names(store, prefix) == ["z"]
        with pytest.raises(LeaseLost):
            store.keep(lease)

    def test_a_kept_lease_holds(self, store: Store, prefix: str) -> None:
        lease = store.grant(TTL)
        revision = put(store, prefix + "x", b"", lease)
        item = store.get(prefix + "x")
        assert item is not None
        assert item.lease == lease
        with store.watch(prefix, revision + 1) as watch:
            for _ in range(8):
                assert self.elapse(watch, 0.3 * TTL) is None
                assert store.keep(lease) >= TTL
        store.revoke(lease)

    def test_revoke_deletes_the_keys_at_once(self, store: Store, prefix: str) -> None:
        lease = store.grant(60)
        revision = put(store, prefix + "x", b"", lease)
        store.revoke(lease)
        assert store.get(prefix + "x") is None
        with store.watch(prefix, revision + 1) as watch:
            assert expect(watch).changes == (Change(prefix + "x", revision + 1, None),)
        store.revoke(lease)
        with pytest.raises(LeaseLost, match="grant a new one"):
            store.keep(lease)

    def test_a_lost_lease_fails_the_whole_txn(self, store: Store, prefix: str) -> None:
        lease = store.grant(60)
        store.revoke(lease)
        with pytest.raises(LeaseLost):
            store.txn([], [Put(prefix + "x", b""), Put(prefix + "y", b"", lease)])
        assert store.range(prefix).items == ()

    def test_a_failed_comparison_comes_before_a_lost_lease(self, store: Store, prefix: str) -> None:
        lease = store.grant(60)
        store.revoke(lease)
        assert not store.txn([at_revision(prefix, 1)], [Put(prefix + "x", b"", lease)]).succeeded

    def test_a_key_belongs_to_the_lease_of_its_last_write(self, store: Store, prefix: str) -> None:
        """A node that comes back takes over its own key. The end of its old lease does not remove it."""
        old, new = store.grant(60), store.grant(60)
        created = put(store, prefix + "node", b"1", old)
        changed = put(store, prefix + "node", b"2", new)
        store.revoke(old)
        assert store.get(prefix + "node") == KeyValue(prefix + "node", b"2", created, changed, new)
        put(store, prefix + "node", b"3")
        store.revoke(new)
        item = store.get(prefix + "node")
        assert item is not None
        assert (item.value, item.lease) == (b"3", 0)

    # -- helpers

    def names(self, store: Store, prefix: str, under: str = "") -> list[str]:
        """The keys that begin with ``prefix + under``, without ``prefix``."""
        return [item.key.removeprefix(prefix) for item in store.range(prefix + under).items]

    def under(self, prefix: str, compare: Compare) -> Compare:
        return Compare(prefix + compare.key, compare.target, compare.revision)
