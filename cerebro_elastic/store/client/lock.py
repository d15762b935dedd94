"""One at a time: a key under a lease that whoever comes next waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from cerebro_elastic.errors import Compacted, TxnUnknown
from cerebro_elastic.store.client.base import Put, Store, absent
from cerebro_elastic.store.client.lease import LeaseKeeper

_SECONDS = 15.0


@contextmanager
def lock(store: Store, key: str, waiting: Callable[[], None], seconds: float = _SECONDS) -> Iterator[None]:
    """Hold ``key`` for the block; wait while another does, and tell so by ``waiting``, once. A holder that
    dies lets go when its lease of ``seconds`` ends."""
    with LeaseKeeper(store, seconds) as keeper:
        told = False
        while not _taken(store, key, keeper.lease):
            if not told:
                waiting()
            told = True
            _await_change(store, key, seconds)
        yield


def _taken(store: Store, key: str, lease: int) -> bool:
    """Whether we hold the key, now or by an earlier try of which no answer came."""
    with suppress(TxnUnknown):
        store.txn([absent(key)], [Put(key, b"{}", lease)])
    item = store.get(key)
    return item is not None and item.lease == lease


def _await_change(store: Store, key: str, seconds: float) -> None:
    """Until somebody lets go of the key, or some seconds have gone."""
    snapshot = store.range(key)
    if snapshot.items:
        with store.watch(key, snapshot.revision + 1) as watch, suppress(Compacted):
            watch.next(seconds)
