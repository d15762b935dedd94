"""The ``Store`` over etcd v3, by its JSON gateway or by gRPC: the verbs are the same (``endpoint.py``). Its
watches survive lost connections."""

from __future__ import annotations

import math
import queue
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, NoReturn

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.errors import Compacted, LeaseLost, Rewound
from cerebro_elastic.store.client.base import (
    ChangeBatch,
    Compare,
    KeyValue,
    Op,
    Snapshot,
    TxnResult,
    Watch,
    check_txn,
)
from cerebro_elastic.store.client.cluster import Cluster
from cerebro_elastic.store.client.endpoint import (
    Json,
    Stream,
    batches_from,
    item_from,
    key_json,
    range_json,
    revision_of,
    txn_json,
)
from cerebro_elastic.store.client.etcd_errors import NOT_FOUND, OUT_OF_RANGE, NoAnswer, NotSent, Refused
from cerebro_elastic.system.clock import Clock, SystemClock
from cerebro_elastic.system.departure import within

_PAGE = 200
"""Keys of one answer: gRPC limits the time of the whole, and over 1 Mbit/s these come within it."""


class EtcdStore:
    """A client of the etcd that ``settings`` name. Connects on first use; then also its version is
    checked (``StoreRefused`` if it is too old)."""

    def __init__(self, settings: StoreSettings, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._cluster = Cluster(settings, self._clock)
        self._watches: weakref.WeakSet[EtcdWatch] = weakref.WeakSet()

    def __repr__(self) -> str:
        return f"<EtcdStore: {self._cluster}>"

    def version(self) -> str:
        """The server's version, such as ``3.5.21``."""
        return self._cluster.version()

    @property
    def clock_ahead(self) -> float:
        """By how many seconds this machine's clock is certainly ahead of etcd's; 0 if that is not known."""
        return self._cluster.clock_ahead

    def get(self, key: str) -> KeyValue | None:
        answer = self._cluster.call("kv/range", {"key": key_json(key)})
        return next((item_from(kv) for kv in answer.get("kvs", ())), None)

    def range(self, prefix: str) -> Snapshot:
        while True:
            try:
                return self._range(prefix)
            except Refused as refusal:
                # Compacted between two pages: begin again, at a later revision.
                if refusal.code != OUT_OF_RANGE:
                    raise

    def txn(self, compares: Sequence[Compare], ops: Sequence[Op]) -> TxnResult:
        check_txn(compares, ops)
        seen = self._cluster.revision
        try:
            answer = self._cluster.call_once(
                "kv/txn", txn_json(compares, ops), undone=lambda: self._undone(ops, seen)
            )
        except Refused as refusal:
            if refusal.code == NOT_FOUND:
                raise LeaseLost(f"a lease that the transaction names has ended: {refusal}") from refusal
            raise
        return TxnResult(answer.get("succeeded", False), revision_of(answer))

    def grant(self, ttl: float) -> int:
        return int(self._cluster.call("lease/grant", {"TTL": str(max(1, math.ceil(ttl)))})["ID"])

    def keep(self, lease: int) -> float:
        answer = self._cluster.call("lease/keepalive", {"ID": str(lease)})
        left = float(answer.get("TTL", 0))
        if left <= 0:
            raise LeaseLost(f"lease {lease:x} has ended or never was; grant a new one")
        return left

    def revoke(self, lease: int) -> None:
        try:
            self._cluster.call("lease/revoke", {"ID": str(lease)})
        except Refused as refusal:
            if refusal.code != NOT_FOUND:
                raise

    def watch(self, prefix: str, start: int) -> EtcdWatch:
        self._cluster.version()
        watch = EtcdWatch(self._cluster, self._clock, prefix, start)
        self._watches.add(watch)
        return watch

    def compact(self, revision: int) -> None:
        """Forget the history up to ``revision``, of all runs: for an etcd that nobody else uses yet."""
        self._cluster.call("kv/compaction", {"revision": str(revision), "physical": True})

    def close(self) -> None:
        for watch in list(self._watches):
            watch.close()
        self._cluster.close()

    def _undone(self, ops: Sequence[Op], seen: int) -> bool:
        """Whether ``ops``, sent when the store was at least at revision ``seen``, were certainly not
        performed: nothing was written since, or not their first key."""
        if not ops:
            return True
        answer = self._cluster.call("kv/range", {"key": key_json(ops[0].key)})
        if revision_of(answer) == seen:
            return True
        # For an absent key this cannot be known: it may have been written and deleted.
        return any(item_from(kv).mod_revision <= seen for kv in answer.get("kvs", ()))

    def _range(self, prefix: str) -> Snapshot:
        """All pages, as of the revision of the first."""
        request: dict[str, Any] = {**range_json(prefix), "limit": str(_PAGE)}
        answer = self._cluster.call("kv/range", request)
        revision = revision_of(answer)
        items = [item_from(kv) for kv in answer.get("kvs", ())]
        while answer.get("more"):
            request |= {"key": key_json(items[-1].key + "\0"), "revision": str(revision)}
            answer = self._cluster.call("kv/range", request)
            items += [item_from(kv) for kv in answer.get("kvs", ())]
        return Snapshot(revision, tuple(items))


_REOPEN_SECONDS = 0.05
_CHANGE_SECONDS, _MOST_CHANGES = 0.03, 1000
"""The seconds that a change of some 4 kB takes over 1 Mbit/s, and the number of changes that etcd sends at
once to a watch that is behind."""


class _Cancelled(NoAnswer):
    """etcd ended the watch, and answers reads of its keys."""


class EtcdWatch(Watch):
    """A ``Watch``: a thread reads the stream, and opens it again at the last revision + 1 when it ends.

    A stream that was silent for half the patience is reopened, because that is the only way to distinguish a
    quiet etcd from one that hangs or a network that drops packets. If etcd has changes that it should have
    sent, the network loses the larger packets, and the stream counts as unheard.

    An etcd with another history than before was restored from a backup, or exchanged: ``Rewound``. It is
    recognised by its revision, as long as that is lower than the last one seen, or by its cluster id.
    """

    def __init__(self, cluster: Cluster, clock: Clock, prefix: str, start: int) -> None:
        self._cluster = cluster
        self._clock = clock
        self._prefix = prefix
        # To etcd, revision 0 means "from now on".
        self._position = max(start, 1)
        # A caller that requests the next changes has seen all before.
        self._seen = self._position - 1
        self._cluster_id = ""
        self._opened_at = 0
        """The revision of etcd when it opened the stream."""
        self._missing = False
        """Whether the last stream ended before its first due changes arrived."""
        self._heard = clock.now()
        self._batches: queue.SimpleQueue[ChangeBatch | Exception | None] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._stream: Stream | None = None
        self._stream_lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"watch {prefix}", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        state = "closed" if self._stopped.is_set() else f"at revision {self._position}"
        return f"<EtcdWatch of {self._prefix!r} {state}>"

    def next(self, timeout: float | None = None) -> ChangeBatch | None:
        if self._stopped.is_set():
            return None
        try:
            message = self._batches.get(timeout=None if timeout is None else max(timeout, 0))
        except queue.Empty:
            return None
        if isinstance(message, ChangeBatch):
            return message
        # The end of the stream is seen by every later call too.
        self._batches.put(message)
        if message is None:
            return None
        raise message

    def close(self) -> None:
        self._stopped.set()
        self._batches.put(None)
        with self._stream_lock:
            if self._stream is not None:
                self._stream.cut()
        # Not for long: the thread may be connecting to a host that does not answer.
        self._thread.join(timeout=within(1.0))

    def _run(self) -> None:
        try:
            self._follow()
        except Exception as exc:
            # next() raises any error.
            self._batches.put(exc)

    def _follow(self) -> None:
        while not self._stopped.is_set():
            opened = self._clock.now()
            try:
                with closing(self._open()) as stream:
                    self._read(stream, opened)
            except (NotSent, NoAnswer) as exc:
                # Lost, silent, or ended by etcd: the position says how much was delivered.
                if self._clock.now() - self._heard > self._cluster.settings.patience:
                    raise self._cluster.unavailable(exc) from exc
            self._stopped.wait(_REOPEN_SECONDS)

    def _open(self) -> Stream:
        request = {**range_json(self._prefix), "start_revision": str(self._position), "fragment": True}
        seconds = self._cluster.settings.patience / 2
        if self._missing:
            # gRPC limits the time of a whole message, and the first may have all that the watch is behind.
            behind = max(self._seen, self._cluster.revision) + 1 - self._position
            seconds += min(max(0, behind), _MOST_CHANGES) * _CHANGE_SECONDS
        return self._cluster.stream("watch", {"create_request": request}, seconds)

    def _read(self, stream: Stream, opened: float) -> None:
        """Deliver changes until the stream ends. It was ``opened`` when its request was sent: a driver may
        count its silence from then on."""
        heard, position, patience = True, self._position, self._cluster.settings.patience
        with self._stream_lock:
            self._stream = stream
        try:
            if self._stopped.is_set():
                return
            for batch in batches_from(self._results(stream)):
                self._batches.put(batch)
                self._position = batch.revision + 1
                self._seen = max(self._seen, batch.revision)
                self._missing = False
        except _Cancelled:  # a watch that is cancelled at once, again and again, hears nothing
            heard = self._clock.now() - opened > patience
            raise
        except NoAnswer:
            silent = self._position == position and self._clock.now() - opened >= patience / 2
            if silent and self._misses():
                heard, self._missing = False, True
                self._cluster.turn_away()
                raise NoAnswer(
                    "it sends no changes, and has some: look whether large packets are lost"
                ) from None
            raise
        finally:
            if heard:
                self._heard = self._clock.now()
            with self._stream_lock:
                self._stream = None

    def _results(self, stream: Stream) -> Iterator[Json]:
        for result in stream.messages():
            if result.get("canceled"):
                self._cancelled(result)
            if result.get("created"):
                self._check_history(result)
            yield result

    def _check_history(self, created: Json) -> None:
        """Raise ``Rewound`` if the server that opened the stream has another history."""
        cluster_id = str(created["header"]["cluster_id"])
        if cluster_id != (self._cluster_id or cluster_id):
            raise self._rewound(f"it is the cluster {cluster_id}, was {self._cluster_id}")
        self._cluster_id = cluster_id
        revision = revision_of(created)
        # The server itself may only be behind the others of its cluster; the cluster cannot be.
        if revision < self._seen and (latest := self._latest()) < self._seen:
            raise self._rewound(f"it is at revision {latest}, was at {self._seen}")
        self._seen = max(self._seen, revision)
        self._opened_at = revision

    def _misses(self) -> bool:
        """Whether the store has changes with which the stream should have begun. Later ones do not count:
        etcd, or the way to it, may have been away for a moment."""
        if self._opened_at < self._position:
            return False
        between = {"min_mod_revision": str(self._position), "max_mod_revision": str(self._opened_at)}
        request = {**range_json(self._prefix), **between, "limit": "1", "keys_only": True}
        return bool(self._cluster.call("kv/range", request).get("kvs"))

    def _latest(self) -> int:
        """The revision of the whole cluster."""
        read = {**range_json(self._prefix), "limit": "1", "keys_only": True}
        return revision_of(self._cluster.call("kv/range", read))

    def _rewound(self, sign: str) -> Rewound:
        return Rewound(
            f"the changes under {self._prefix!r} from revision {self._position} on are gone: {self._cluster} "
            f"was restored from a backup or exchanged ({sign}); range afresh and watch from there"
        )

    def _cancelled(self, result: Json) -> NoReturn:
        if "compact_revision" in result:
            raise Compacted(
                f"the changes under {self._prefix!r} from revision {self._position} on are gone: etcd is "
                f"compacted at {result['compact_revision']}; range afresh and watch from there"
            )
        # etcd's reason for a forbidden watch differs from version to version, and may be wrong. A read of the
        # same keys is refused for the same cause, and logs in again if that is all it takes.
        self._latest()
        raise _Cancelled(f"the watch was cancelled: {result.get('cancel_reason', 'without a reason')}")
