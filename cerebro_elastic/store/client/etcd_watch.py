"""A watch over etcd that survives lost connections."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import NoReturn

from cerebro_elastic.errors import Compacted, Rewound
from cerebro_elastic.store.client.base import ChangeBatch, Watch
from cerebro_elastic.store.client.cluster import Cluster
from cerebro_elastic.store.client.endpoint import Json, Stream, batches_from, range_json, revision_of
from cerebro_elastic.store.client.etcd_errors import NoAnswer, NotSent
from cerebro_elastic.system.clock import Clock

_REOPEN_SECONDS = 0.05


class _Cancelled(NoAnswer):
    """etcd ended the watch, and answers reads of its keys."""


class EtcdWatch(Watch):
    """A ``Watch``: a thread reads the stream, and opens it again at the last revision + 1 when it ends.

    A stream that was silent for half the patience is opened anew, because that is the only way to
    distinguish a quiet etcd from one that hangs or a network that drops packets.

    An etcd with another history than before was restored from a backup, or exchanged: ``Rewound``. It is
    known by its revision, as long as that is lower than what was seen, or by its cluster id.
    """

    def __init__(self, cluster: Cluster, clock: Clock, prefix: str, start: int) -> None:
        self._cluster = cluster
        self._clock = clock
        self._prefix = prefix
        # To etcd, revision 0 means "from now on".
        self._position = max(start, 1)
        # A caller that asks for what comes next has seen what came before.
        self._seen = self._position - 1
        self._cluster_id = ""
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
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        try:
            self._follow()
        except Exception as exc:
            # Whatever it is, next() raises it.
            self._batches.put(exc)

    def _follow(self) -> None:
        while not self._stopped.is_set():
            try:
                with closing(self._open()) as stream:
                    self._read(stream)
            except (NotSent, NoAnswer) as exc:
                # Lost, silent, or ended by etcd: the position says what was delivered.
                if self._clock.now() - self._heard > self._cluster.settings.patience:
                    raise self._cluster.unavailable(exc) from exc
            self._stopped.wait(_REOPEN_SECONDS)

    def _open(self) -> Stream:
        request = {**range_json(self._prefix), "start_revision": str(self._position), "fragment": True}
        return self._cluster.stream("watch", {"create_request": request}, self._cluster.settings.patience / 2)

    def _read(self, stream: Stream) -> None:
        """Deliver what comes until the stream ends, for whatever reason."""
        opened, cancelled = self._clock.now(), False
        with self._stream_lock:
            self._stream = stream
        try:
            if self._stopped.is_set():
                return
            for batch in batches_from(self._results(stream)):
                self._batches.put(batch)
                self._position = batch.revision + 1
                self._seen = max(self._seen, batch.revision)
        except _Cancelled:
            cancelled = True
            raise
        finally:
            now = self._clock.now()
            # A watch that is cancelled at once, again and again, hears nothing.
            if not cancelled or now - opened > self._cluster.settings.patience:
                self._heard = now
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
        """Raise ``Rewound`` if the server that opened the stream knows another history."""
        cluster_id = str(created["header"]["cluster_id"])
        if cluster_id != (self._cluster_id or cluster_id):
            raise self._rewound(f"it is the cluster {cluster_id}, was {self._cluster_id}")
        self._cluster_id = cluster_id
        revision = revision_of(created)
        # The server itself may only be behind the others of its cluster; the cluster cannot be.
        if revision < self._seen and (latest := self._latest()) < self._seen:
            raise self._rewound(f"it is at revision {latest}, was at {self._seen}")
        self._seen = max(self._seen, revision)

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
        # What etcd says of a watch that it does not allow differs from version to version, and may be wrong.
        # A read of the same keys is refused for the same cause, and logs in anew where that is all.
        self._latest()
        raise _Cancelled(f"the watch was cancelled: {result.get('cancel_reason', 'without a reason')}")
