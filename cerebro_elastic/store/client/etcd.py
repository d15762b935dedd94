"""The ``Store`` over etcd v3, by its JSON gateway or by gRPC: the verbs are the same (``endpoint.py``)."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Any

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.errors import LeaseLost
from cerebro_elastic.store.client.base import Compare, KeyValue, Op, Snapshot, TxnResult, check_txn
from cerebro_elastic.store.client.cluster import Cluster
from cerebro_elastic.store.client.endpoint import item_from, key_json, range_json, revision_of, txn_json
from cerebro_elastic.store.client.etcd_errors import NOT_FOUND, OUT_OF_RANGE, Refused
from cerebro_elastic.store.client.etcd_watch import EtcdWatch
from cerebro_elastic.system.clock import Clock, SystemClock

_PAGE = 1000


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

    def close(self) -> None:
        for watch in list(self._watches):
            watch.close()
        self._cluster.close()

    def _undone(self, ops: Sequence[Op], seen: int) -> bool:
        """Whether ``ops``, sent when the store was at least at revision ``seen``, certainly were not done:
        nothing was written since, or not the first key, with which all others would have been written."""
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
