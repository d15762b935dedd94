"""The holder of a lock is alone, and releases it by ending, also by dying."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from cerebro_elastic.store.client.base import Put
from cerebro_elastic.store.client.lease import lock
from support.memory_store import MemoryStore
from support.waiting import SOON

KEY, MADE = "/a/turn", "/a/thing"


def nothing() -> None:
    pass


def in_a_thread(target: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=target)
    thread.start()
    return thread


def test_the_next_process_waits_and_its_callback_is_called_once() -> None:
    store, order, waits = MemoryStore(), [], threading.Semaphore(0)

    def other() -> None:
        with lock(store, KEY, MADE, waits.release):
            order.append("other")

    with lock(store, KEY, MADE, nothing):
        thread = in_a_thread(other)
        assert waits.acquire(timeout=SOON)
        order.append("one")
    thread.join(10)
    assert order == ["one", "other"]
    assert not waits.acquire(blocking=False)
    assert store.get(KEY) is None


def test_what_is_made_is_not_waited_for_though_the_lock_is_held() -> None:
    store, waits, got = MemoryStore(), threading.Semaphore(0), []

    def other() -> None:
        with lock(store, KEY, MADE, waits.release, 0.05) as needed:
            got.append(needed)

    with lock(store, KEY, MADE, nothing) as needed:
        assert needed
        thread = in_a_thread(other)
        assert waits.acquire(timeout=SOON)
        store.txn([], [Put(MADE, b"{}")])
        thread.join(60)
        assert got == [False]


def test_a_dead_holder_is_waited_for_no_longer_than_its_lease() -> None:
    store = MemoryStore()
    dead = lock(store, KEY, MADE, nothing)
    dead.__enter__()
    item = store.get(KEY)
    assert item is not None
    ended = threading.Timer(0.1, lambda: store.revoke(item.lease))
    ended.start()
    with lock(store, KEY, MADE, nothing):
        pass
    ended.join()
    with suppress(ValueError):
        dead.__exit__(ValueError, ValueError(), None)
