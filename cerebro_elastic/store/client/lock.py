"""A lock: a key under a lease, which one process holds and the others wait for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from cerebro_elastic.errors import Compacted, TxnUnknown
from cerebro_elastic.store.client.base import Put, Store, absent
from cerebro_elastic.store.client.lease import LeaseKeeper

_LEASE_SECONDS = 15.0


@contextmanager
def lock(
    store: Store, key: str, waiting: Callable[[], None], seconds: float = _LEASE_SECONDS
) -> Iterator[None]:
    """Hold the lock ``key`` in the block.

    While another process holds it, wait; ``waiting`` is called once. The lock of a process that dies is free
    when its lease of ``seconds`` ends.
    """
    with LeaseKeeper(store, seconds) as keeper:
        announced = False
        while not _try_lock(store, key, keeper.lease):
            if not announced:
                waiting()
            announced = True
            _await_change(store, key, seconds)
        yield


def _try_lock(store: Store, key: str, lease: int) -> bool:
    """Whether we hold the lock, by this try or by an earlier one whose answer was lost."""
    with suppress(TxnUnknown):
        store.txn([absent(key)], [Put(key, b"{}", lease)])
    item = store.get(key)
    return item is not None and item.lease == lease


def _await_change(store: Store, key: str, seconds: float) -> None:
    """Wait until the holder releases the lock, for at most ``seconds``."""
    snapshot = store.range(key)
    if snapshot.items:
        with store.watch(key, snapshot.revision + 1) as watch, suppress(Compacted):
            watch.next(seconds)
