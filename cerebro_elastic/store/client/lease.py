"""A lease that is kept by deadline: it counts as lost as soon as it may have ended. And a lock: a key under a
lease, which one process holds and the others wait for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Self

from cerebro_elastic.errors import Compacted, LeaseLost, StoreError, StoreUnavailable, TxnUnknown
from cerebro_elastic.store.client.base import Put, Store, absent
from cerebro_elastic.system.clock import Clock, SystemClock
from cerebro_elastic.system.departure import within


@dataclass(slots=True)
class LeaseDeadline:
    """Until when the lease certainly holds; all times are seconds of one monotonic clock.

    The store counts from when it gets a request, we from when we send it: our deadline is the earlier.
    """

    ends: float

    def left(self, now: float) -> float:
        """The seconds left at ``now``."""
        return self.ends - now

    def renew(self, sent: float, granted: float, now: float) -> bool:
        """Take in an answer that came at ``now`` to a renewal of ``granted`` seconds sent at ``sent``.
        False if it came too late: the lease was lost before."""
        if self.left(now) <= 0:
            return False
        self.ends = max(self.ends, sent + granted)
        return True


class PacketCheck:
    """Checks in a separate thread whether the network loses larger packets, as where an MTU is wrong.

    Renewals of leases are small. They would get through while commits and assignments, for which the lease is
    kept, do not. So this is called before each renewal.

    Args:
        exchange: Exchanges with the store a request and an answer that take packets of full size.
        ttl: The lease's. For twice that time the exchange may fail: on a bad network it does now and then.
    """

    def __init__(self, exchange: Callable[[], None], ttl: float) -> None:
        self._exchange = exchange
        self._seconds = 2 * ttl
        self._passed = time.monotonic()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._look, name="larger packets", daemon=True)
        self._thread.start()

    def __call__(self) -> None:
        """Raise ``StoreUnavailable`` if larger packets are lost."""
        if time.monotonic() - self._passed > self._seconds:
            raise StoreUnavailable(
                f"no packet of full size has come through to etcd and back for {self._seconds:g} s: look "
                "whether etcd is up, and whether the way to it has a wrong MTU"
            )

    def close(self) -> None:
        self._closed.set()
        self._thread.join(timeout=within(1.0))  # a request to a store that is away may take longer

    def _look(self) -> None:
        while not self._closed.wait(self._seconds / 4):
            with suppress(StoreError):
                self._exchange()
                self._passed = time.monotonic()


class LeaseKeeper:
    """A lease of ``ttl`` seconds, renewed every third of it until ``revoke`` or the end of the ``with``.

    ``lost`` is set once and for all when the deadline passes without a renewal, or when the store says that
    the lease has ended; an unreachable store is called again until then. One thread renews; another guards
    the deadline, because a renewal may hang for longer than the lease lasts.

    Before each renewal ``check`` is called, which raises ``StoreUnavailable`` if the lease would be useless.
    """

    def __init__(
        self,
        store: Store,
        ttl: float,
        clock: Clock | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.lost = threading.Event()
        self._store = store
        self._ttl = ttl
        self._check = check
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        sent = self._clock.now()
        self.lease = store.grant(ttl)
        self._deadline = LeaseDeadline(sent + ttl)
        self._revoked = False
        self._threads = [
            threading.Thread(target=target, name=f"{name} lease {self.lease:x}", daemon=True)
            for name, target in (("renew", self._renew), ("guard", self._guard))
        ]
        for thread in self._threads:
            thread.start()

    def __repr__(self) -> str:
        state = "lost" if self.lost.is_set() else "revoked" if self._revoked else f"kept at {self._ttl:g} s"
        return f"<LeaseKeeper of {self.lease:x}: {state}>"

    def revoke(self) -> None:
        """Stop keeping the lease and end it, with its keys. Raises as ``Store.revoke``."""
        with self._lock:
            self._stopped.set()
        for thread in self._threads:
            # Not for long: a renewal may hang.
            thread.join(timeout=within(1.0))
        if not self._revoked:
            self._store.revoke(self.lease)
            self._revoked = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # A lease that cannot be revoked ends by its own time.
        with suppress(StoreUnavailable):
            self.revoke()

    def _renew(self) -> None:
        wait = self._ttl / 3
        while not self._stopped.wait(wait):
            try:
                self._check()
                sent = self._clock.now()
                granted = self._store.keep(self.lease)
            except LeaseLost:
                self._lose()
            except StoreError:
                wait = self._ttl / 10
            else:
                now = self._clock.now()
                wait = max(0.0, sent + self._ttl / 3 - now)
                with self._lock:
                    in_time = self._deadline.renew(sent, granted, now)
                if not in_time:
                    self._lose()

    def _guard(self) -> None:
        while not self._stopped.wait(max(0.0, self._left())):
            if self._left() <= 0:
                self._lose()

    def _left(self) -> float:
        with self._lock:
            return self._deadline.left(self._clock.now())

    def _lose(self) -> None:
        with self._lock:
            # A lease that we ended ourselves is not lost.
            if not self._stopped.is_set():
                self.lost.set()
                self._stopped.set()


_LEASE_SECONDS = 15.0


@contextmanager
def lock(
    store: Store, key: str, made: str, waiting: Callable[[], None], seconds: float = _LEASE_SECONDS
) -> Iterator[bool]:
    """Hold the lock ``key`` in the block, which makes the key ``made``. The block gets ``False``, and has
    nothing to do, once that key exists: then nobody waits for a holder of the lock, perhaps on a bad network.

    While another process holds the lock, wait; ``waiting`` is called once. The lock of a process that dies is
    free when its lease of ``seconds`` ends. Each try has its own lease: the machine may sleep between two
    tries.
    """
    announced = False
    while True:
        with LeaseKeeper(store, seconds) as keeper:
            held = _try_lock(store, key, keeper.lease)
            there = store.get(made) is not None
            if held or there:
                yield not there
                return
        if not announced:
            waiting()
        announced = True
        _await_change(store, key, seconds)


def _try_lock(store: Store, key: str, lease: int) -> bool:
    """Whether we hold the lock, also if the answer to the try was lost. A lease that has ended, for example
    while the store was away, holds nothing."""
    with suppress(TxnUnknown, LeaseLost):
        store.txn([absent(key)], [Put(key, b"{}", lease)])
    item = store.get(key)
    return item is not None and item.lease == lease


def _await_change(store: Store, key: str, seconds: float) -> None:
    """Wait until the holder releases the lock, for at most ``seconds``."""
    snapshot = store.range(key)
    if snapshot.items:
        with store.watch(key, snapshot.revision + 1) as watch, suppress(Compacted):
            watch.next(seconds)
