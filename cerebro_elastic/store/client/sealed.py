"""A run's values, signed with the run's key: a process that can write to etcd but has no key cannot make the
run's nodes believe anything.

A sealed value is the value and, in a separate line, ``hmac:`` with the signature of it and of its key's name,
which includes the run's id: it is invalid under another key, or in another run. No signature reveals a value
that was deleted, or set back to one that was signed there before (docs/how-to/security.md).
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from dataclasses import replace

from cerebro_elastic.store.client.base import (
    Change,
    ChangeBatch,
    Compare,
    KeyValue,
    Op,
    Put,
    Snapshot,
    Store,
    TxnResult,
    Watch,
)
from cerebro_elastic.system import logs
from cerebro_elastic.system.run_key import SIGNATURE, RunKey

_MARK = b"\nhmac:"
_UNSIGNED = b" is not signed with the key of the run"
_LOG = logs.EventLog()


class SealedStore:
    """``store``, where values are signed with ``key`` and read back without their signature.

    A value that is not signed with the key is read as a text that says so, and that no value of a run equals
    (``unsigned``). Without a ``key`` nothing is signed, and signatures are not checked; nor for keys that are
    not ``ours``.
    """

    def __init__(self, store: Store, ours: Callable[[str], bool], key: RunKey | None) -> None:
        self.bare = store
        """The store as it is."""
        self._ours = ours
        self._key = key

    def get(self, key: str) -> KeyValue | None:
        item = self.bare.get(key)
        return item and self._opened(item)

    def range(self, prefix: str) -> Snapshot:
        snapshot = self.bare.range(prefix)
        return Snapshot(snapshot.revision, tuple(map(self._opened, snapshot.items)))

    def txn(self, compares: Sequence[Compare], ops: Sequence[Op]) -> TxnResult:
        return self.bare.txn(compares, [self._sealed(op) for op in ops])

    def grant(self, ttl: float) -> int:
        return self.bare.grant(ttl)

    def keep(self, lease: int) -> float:
        return self.bare.keep(lease)

    def revoke(self, lease: int) -> None:
        self.bare.revoke(lease)

    def watch(self, prefix: str, start: int) -> Watch:
        return _SealedWatch(self, self.bare.watch(prefix, start))

    def close(self) -> None:
        self.bare.close()

    def signed(self, item: KeyValue) -> bool | None:
        """Whether an item, as it is in the store, is signed with our key; ``None`` if it is with another one,
        or we have none."""
        value, signature = _split(item.value)
        if not signature:
            return False
        return True if self._key and self._bears(item.key, value, signature) else None

    def opened(self, batch: ChangeBatch) -> ChangeBatch:
        """A batch with its values checked, and without their signatures."""
        return ChangeBatch(batch.revision, tuple(map(self._changed, batch.changes)))

    def _changed(self, change: Change) -> Change:
        return change if change.item is None else replace(change, item=self._opened(change.item))

    def _sealed(self, op: Op) -> Op:
        if self._key is None or not isinstance(op, Put) or not self._ours(op.key):
            return op
        return replace(op, value=op.value + _MARK + self._key.signature(op.key, op.value))

    def _opened(self, item: KeyValue) -> KeyValue:
        if not self._ours(item.key):
            return item
        value, signature = _split(item.value)
        if self._key is not None and not self._bears(item.key, value, signature):
            _LOG.warning("not signed with the key of the run", key=item.key, revision=item.mod_revision)
            value = item.key.encode() + _UNSIGNED
        return item if value is item.value else replace(item, value=value)

    def _bears(self, name: str, value: bytes, signature: bytes) -> bool:
        assert self._key is not None
        return hmac.compare_digest(self._key.signature(name, value), signature)


def unsigned(item: KeyValue) -> bool:
    """Whether a ``SealedStore`` returned the value in place of an unsigned one."""
    return item.value.endswith(_UNSIGNED)


class _SealedWatch(Watch):
    """A watch whose values are checked."""

    def __init__(self, store: SealedStore, watch: Watch) -> None:
        self._store = store
        self._watch = watch

    def next(self, timeout: float | None = None) -> ChangeBatch | None:
        batch = self._watch.next(timeout)
        return batch and self._store.opened(batch)

    def close(self) -> None:
        self._watch.close()


def _split(sealed: bytes) -> tuple[bytes, bytes]:
    """The value and its signature; empty if it is unsigned."""
    at = len(sealed) - len(_MARK) - SIGNATURE
    if at < 0 or not sealed.startswith(_MARK, at):
        return sealed, b""
    return sealed[:at], sealed[at + len(_MARK) :]
