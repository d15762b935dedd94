"""The exact in-memory fake of the store: etcd's revisions, leases, watches and compaction.

All clients of one store share one ``MemoryStore``. There is no background thread: leases end
lazily, when any verb or ``Watch.next`` finds by the injected clock that their time is over.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from cerebro_elastic.errors import Compacted, LeaseLost, Rewound, StoreRefused
from cerebro_elastic.store.client.base import (
    MAX_BYTES,
    MAX_OPS,
    Change,
    ChangeBatch,
    Compare,
    KeyValue,
    Op,
    Put,
    Snapshot,
    TxnResult,
    Watch,
    check_txn,
)
from cerebro_elastic.system.clock import Clock, SystemClock


@dataclass(slots=True)
class _Lease:
    ttl: float
    deadline: float
    keys: set[str] = field(default_factory=set)


class MemoryStore:
    """A ``Store`` in this process's memory; as in etcd, an empty store has revision 1."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._changed = threading.Condition()
        self._revision = 1
        self._keys: dict[str, KeyValue] = {}
        self._leases: dict[int, _Lease] = {}
        self._granted = 0
        # _history[i] holds the changes of revision _oldest + i.
        self._history: list[ChangeBatch] = []
        self._oldest = 2

    def __repr__(self) -> str:
        return (
            f"<MemoryStore at revision {self._revision}: {len(self._keys)} keys, {len(self._leases)} leases>"
        )

    def get(self, key: str) -> KeyValue | None:
        with self._changed:
            self._expire()
            return self._keys.get(key)

    def range(self, prefix: str) -> Snapshot:
        with self._changed:
            self._expire()
            # Code points sort as their UTF-8 bytes do, so this is etcd's order.
            names = sorted(name for name in self._keys if name.startswith(prefix))
            return Snapshot(self._revision, tuple(self._keys[name] for name in names))

    def txn(self, compares: Sequence[Compare], ops: Sequence[Op]) -> TxnResult:
        check_txn(compares, ops)
        _check_limits(compares, ops)
        with self._changed:
            self._expire()
            if not all(self._holds(compare) for compare in compares):
                return TxnResult(False, self._revision)
            for op in ops:
                if isinstance(op, Put) and op.lease:
                    self._lease(op.lease)
            self._apply(ops)
            return TxnResult(True, self._revision)

    def grant(self, ttl: float) -> int:
        with self._changed:
            self._expire()
            self._granted += 1
            whole = float(max(1, math.ceil(ttl)))
            self._leases[self._granted] = _Lease(whole, self._clock.now() + whole)
            return self._granted

    def keep(self, lease: int) -> float:
        with self._changed:
            self._expire()
            kept = self._lease(lease)
            kept.deadline = self._clock.now() + kept.ttl
            return kept.ttl

    def revoke(self, lease: int) -> None:
        with self._changed:
            self._expire()
            self._end(lease)

    def watch(self, prefix: str, start: int) -> MemoryWatch:
        return MemoryWatch(self, prefix, start)

    def compact(self, revision: int) -> None:
        """Forget the changes before ``revision``: a watch that still asks for one raises ``Compacted``."""
        with self._changed:
            self._expire()
            if revision > self._revision:
                raise ValueError(f"cannot compact at revision {revision}: the store is at {self._revision}")
            if revision > self._oldest:
                del self._history[: revision - self._oldest]
                self._oldest = revision

    def close(self) -> None:
        """Nothing to release: other clients may share this store."""

    def _holds(self, compare: Compare) -> bool:
        item = self._keys.get(compare.key)
        if item is None:
            return compare.revision == 0
        revision = item.create_revision if compare.target == "create" else item.mod_revision
        return revision == compare.revision

    def _lease(self, lease: int) -> _Lease:
        try:
            return self._leases[lease]
        except KeyError:
            raise LeaseLost(f"lease {lease:x} has ended or never was; grant a new one") from None

    def _apply(self, ops: Sequence[Op]) -> None:
        """Perform ``ops`` at one new revision; if they change nothing there is none."""
        revision = self._revision + 1
        changes = []
        for op in ops:
            old = self._keys.pop(op.key, None)
            if old is not None and old.lease:
                self._leases[old.lease].keys.discard(op.key)
            if isinstance(op, Put):
                created = old.create_revision if old else revision
                item = KeyValue(op.key, op.value, created, revision, op.lease)
                self._keys[op.key] = item
                if op.lease:
                    self._leases[op.lease].keys.add(op.key)
                changes.append(Change(op.key, revision, item))
            elif old is not None:
                changes.append(Change(op.key, revision, None))
        self._record(revision, changes)

    def _record(self, revision: int, changes: list[Change]) -> None:
        if changes:
            self._revision = revision
            self._history.append(ChangeBatch(revision, tuple(changes)))
            self._changed.notify_all()

    def _end(self, lease: int) -> None:
        """Drop the lease, and its keys at one revision."""
        ended = self._leases.pop(lease, None)
        if ended is None:
            return
        revision = self._revision + 1
        for name in ended.keys:
            del self._keys[name]
        self._record(revision, [Change(name, revision, None) for name in sorted(ended.keys)])

    def _expire(self) -> float | None:
        """End the leases whose time is over; the seconds until the next one ends, if any."""
        if not self._leases:
            return None
        now = self._clock.now()
        over = sorted((lease.deadline, id) for id, lease in self._leases.items() if lease.deadline <= now)
        for _, id in over:
            self._end(id)
        return min((lease.deadline - now for lease in self._leases.values()), default=None)


class MemoryWatch(Watch):
    """A ``Watch`` over a ``MemoryStore``: a position in its history."""

    def __init__(self, store: MemoryStore, prefix: str, start: int) -> None:
        self._store = store
        self._prefix = prefix
        self._position = max(start, 2)
        self._closed = False

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"at revision {self._position}"
        return f"<MemoryWatch of {self._prefix!r} {state}>"

    def next(self, timeout: float | None = None) -> ChangeBatch | None:
        """The next batch; ``timeout`` is in real seconds, whatever the store's clock."""
        changed = self._store._changed
        deadline = None if timeout is None else time.monotonic() + timeout
        with changed:
            while True:
                lease_ends = self._store._expire()
                if self._closed:
                    return None
                batch = self._take()
                if batch is not None:
                    return batch
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return None
                changed.wait(min((wait for wait in (left, lease_ends) if wait is not None), default=None))

    def _take(self) -> ChangeBatch | None:
        store = self._store
        if self._position < store._oldest:
            raise Compacted(
                f"the changes under {self._prefix!r} from revision {self._position} on are gone: "
                f"the store is compacted at {store._oldest}; range afresh and watch from there"
            )
        if self._position > store._revision + 1:
            raise Rewound(
                f"the changes under {self._prefix!r} from revision {self._position} on are gone: "
                f"the store is at revision {store._revision}; range afresh and watch from there"
            )
        while self._position <= store._revision:
            batch = store._history[self._position - store._oldest]
            self._position += 1
            changes = tuple(change for change in batch.changes if change.key.startswith(self._prefix))
            if changes:
                return ChangeBatch(batch.revision, changes)
        return None

    def close(self) -> None:
        with self._store._changed:
            self._closed = True
            self._store._changed.notify_all()


def _check_limits(compares: Sequence[Compare], ops: Sequence[Op]) -> None:
    """Refuse what an etcd with default settings refuses."""
    if max(len(compares), len(ops)) > MAX_OPS:
        raise StoreRefused(
            f"{len(compares)} comparisons and {len(ops)} operations in one transaction are too many "
            f"operations: at most {MAX_OPS}; make smaller transactions"
        )
    size = sum(len(each.key.encode(errors="surrogateescape")) for each in (*compares, *ops))
    size += sum(len(op.value) for op in ops if isinstance(op, Put))
    if size > MAX_BYTES:
        raise StoreRefused(
            f"a transaction of {size} bytes is too large: at most {MAX_BYTES} bytes; write smaller values"
        )
