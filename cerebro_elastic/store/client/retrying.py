"""A store that is waited for while it is out of reach."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from cerebro_elastic.errors import StoreUnavailable
from cerebro_elastic.store.client.base import (
    ChangeBatch,
    Compare,
    KeyValue,
    Op,
    Snapshot,
    Store,
    TxnResult,
    Watch,
)
from cerebro_elastic.store.client.cluster import LEAST_PATIENCE
from cerebro_elastic.system.clock import Clock, SystemClock
from cerebro_elastic.system.departure import seconds_to_leave, within
from cerebro_elastic.system.logs import EventLog

PATIENCE = 600.0
"""Seconds that ranks and agents wait for a store out of reach, if ``CEREBRO_PATIENCE`` does not say."""

_FIRST_DELAY, _LONGEST_DELAY = 0.05, 2.0
_T = TypeVar("_T")


class RetryingStore:
    """``store``, but an operation that finds it out of reach, or out of space, is repeated for up to
    ``patience`` seconds, and no longer than the process may stay. One line is logged when the waiting begins
    and one when it is over.

    A transaction whose answer was lost stays ``TxnUnknown``: it is not sent again here. ``keep`` and
    ``revoke`` are not repeated: a lease has its own deadline.
    """

    def __init__(self, store: Store, patience: float, log: EventLog, clock: Clock | None = None) -> None:
        self._store = store
        self._patience = patience
        self._log = log
        self._clock = clock or SystemClock()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._waiting = 0
        self._since = 0.0

    def get(self, key: str) -> KeyValue | None:
        return self._retried(lambda: self._store.get(key))

    def range(self, prefix: str) -> Snapshot:
        return self._retried(lambda: self._store.range(prefix))

    def txn(self, compares: Sequence[Compare], ops: Sequence[Op]) -> TxnResult:
        return self._retried(lambda: self._store.txn(compares, ops))

    def grant(self, ttl: float) -> int:
        return self._retried(lambda: self._store.grant(ttl))

    def keep(self, lease: int) -> float:
        return self._store.keep(lease)

    def revoke(self, lease: int) -> None:
        self._store.revoke(lease)

    def watch(self, prefix: str, start: int) -> Watch:
        return _RetryingWatch(self, prefix, start)

    def open_watch(self, prefix: str, start: int) -> Watch:
        """A watch of the wrapped store."""
        return self._retried(lambda: self._store.watch(prefix, start))

    def close(self) -> None:
        self._closed.set()
        self._store.close()

    def _retried(self, operation: Callable[[], _T]) -> _T:
        try:
            return operation()
        except StoreUnavailable as error:
            problem = error
        self._begin(problem)
        begun, delay = self._clock.now(), _FIRST_DELAY
        deadline = begun + self._patience
        try:
            while not self._closed.wait(delay):
                try:
                    return operation()
                except StoreUnavailable as error:
                    problem = error
                if self._clock.now() >= deadline or seconds_to_leave() <= LEAST_PATIENCE:
                    break
                delay = within(min(2 * delay, _LONGEST_DELAY))
            waited = min(self._patience, self._clock.now() - begun)
            reason = "as CEREBRO_PATIENCE says" if waited == self._patience else "as this process must leave"
            raise type(problem)(
                f"{problem}; waited {waited:.0f} s for it, {reason}: what was committed is safe, start the "
                "node again when etcd is there"
            ) from problem
        finally:
            self._end()

    def _begin(self, problem: StoreUnavailable) -> None:
        with self._lock:
            self._waiting += 1
            if self._waiting > 1:
                return
            self._since = self._clock.now()
        self._log.warning("waiting for the store", why=str(problem), patience=self._patience)

    def _end(self) -> None:
        with self._lock:
            self._waiting -= 1
            if self._waiting:
                return
            seconds = self._clock.now() - self._since
        self._log.info("no longer waiting for the store", seconds=round(seconds, 1))


class _RetryingWatch(Watch):
    """A ``Watch`` that continues from its position when the store answers again."""

    def __init__(self, store: RetryingStore, prefix: str, start: int) -> None:
        self._store = store
        self._prefix = prefix
        self._position = start
        self._lock = threading.Lock()
        self._closed = False
        self._watch = store.open_watch(prefix, start)

    def next(self, timeout: float | None = None) -> ChangeBatch | None:
        """As ``Watch.next``; later than ``timeout`` where the store has to be waited for."""
        while True:
            try:
                batch = self._watch.next(timeout)
            except StoreUnavailable:
                self._store.get(self._prefix)  # until it answers
                self._reopen()
                continue
            if batch is not None:
                self._position = batch.revision + 1
            return batch

    def _reopen(self) -> None:
        watch = self._store.open_watch(self._prefix, self._position)
        with self._lock:
            self._watch.close()
            self._watch = watch
            if self._closed:
                watch.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._watch.close()
