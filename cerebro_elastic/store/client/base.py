"""The store: a few operations on revisioned keys, as etcd v3 defines them.

A *revision* is the store's global logical time: every transaction that changes something
increases it by one, and all its changes bear it. Everything above the store relies on three
facts only, which ``tests/support/store_contract.py`` checks on every driver:

1. a transaction is atomic and its comparisons see one revision;
2. a watch delivers every change from its start revision on, in revision order, the changes of
   one revision together, none twice and none left out (or raises ``Compacted``);
3. a key under a lease is deleted when the lease ends, and not while it is kept alive in time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, Self, TypeAlias

MAX_OPS = 128
"""Comparisons, and operations, that one transaction may have."""
MAX_BYTES = 3 << 19
"""Bytes of a request, 1.5 MiB: keys, values and a few bytes for each comparison and operation."""


@dataclass(frozen=True, slots=True)
class KeyValue:
    """A key and its present value."""

    key: str
    value: bytes
    create_revision: int
    """The revision at which the key was created."""
    mod_revision: int
    """The revision that wrote the value."""
    lease: int = 0
    """The lease whose end deletes the key; 0 if it has none."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All keys under a prefix at one revision."""

    revision: int
    items: tuple[KeyValue, ...]
    """The keys, sorted."""


@dataclass(frozen=True, slots=True)
class Compare:
    """A condition of a transaction."""

    key: str
    target: Literal["create", "mod"]
    """The compared one of its revisions."""
    revision: int
    """Its required value; 0: the key is absent."""


@dataclass(frozen=True, slots=True)
class Put:
    """Write a key."""

    key: str
    value: bytes
    lease: int = 0
    """The lease whose end deletes it; 0: it stays."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a key; nothing happens if it is absent."""

    key: str


Op: TypeAlias = Put | Delete


@dataclass(frozen=True, slots=True)
class TxnResult:
    """The outcome of a transaction."""

    succeeded: bool
    """Whether its conditions held, and it was performed."""
    revision: int
    """The store's revision afterwards: that of the changes, if it was performed."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one key."""

    key: str
    revision: int
    item: KeyValue | None
    """The key as it is then; ``None``: deleted."""


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """All changes of one revision under the watched prefix."""

    revision: int
    changes: tuple[Change, ...]


class Watch(Protocol):
    """A stream of change batches that survives lost connections (resumes at last revision + 1)."""

    def next(self, timeout: float | None = None) -> ChangeBatch | None:
        """The next batch, or ``None`` after ``timeout`` seconds without one.

        Raises ``Compacted`` if the requested changes are gone (its subclass ``Rewound`` if the store went
        back to an earlier revision), and ``StoreUnavailable`` or ``StoreRefused`` if the store has not
        answered for longer than the driver's patience.
        """

    def close(self) -> None:
        """End the stream and its threads; a blocked ``next`` returns ``None``."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Store(Protocol):
    """Keys are ``str`` (UTF-8), values ``bytes``. All verbs may be called from any thread.

    Reads and lease verbs are retried with backoff within the driver's deadline and then raise
    ``StoreUnavailable``. ``txn`` is sent once: if no answer comes it raises ``TxnUnknown``
    (``StoreUnavailable`` if it surely was not performed). A store without space for writes is out of reach
    for ``txn`` and ``grant``: ``StoreFull``. One transaction has at most ``MAX_OPS`` comparisons and
    ``MAX_OPS`` operations, a request ``MAX_BYTES`` bytes, if etcd was started with its defaults; larger
    ones are ``StoreRefused``.
    """

    def get(self, key: str) -> KeyValue | None:
        """The key's present value, read linearizably."""

    def range(self, prefix: str) -> Snapshot:
        """All keys that begin with ``prefix``, as of one revision."""

    def txn(self, compares: Sequence[Compare], ops: Sequence[Op]) -> TxnResult:
        """Perform all ``ops`` if all ``compares`` hold, else none. A key may be named by one op only.

        Raises ``LeaseLost``, with nothing done, if a ``Put`` names a lease that has ended.
        """

    def grant(self, ttl: float) -> int:
        """A new lease of at least ``ttl`` seconds (etcd counts whole seconds, rounded up)."""

    def keep(self, lease: int) -> float:
        """Renew the lease; returns its remaining seconds. Raises ``LeaseLost`` if it has ended."""

    def revoke(self, lease: int) -> None:
        """End the lease and delete its keys; nothing happens if it has ended already."""

    def watch(self, prefix: str, start: int) -> Watch:
        """All changes under ``prefix`` from revision ``start`` on: one after a revision that was read."""

    def close(self) -> None:
        """Release connections and threads; leases are left to their time."""


def absent(key: str) -> Compare:
    """The condition that ``key`` does not exist."""
    return Compare(key, "create", 0)


def at_revision(key: str, revision: int) -> Compare:
    """The condition that ``key`` was last written at ``revision``."""
    return Compare(key, "mod", revision)


def created_at(key: str, revision: int) -> Compare:
    """The condition that ``key`` exists since ``revision``, however often it was written after."""
    return Compare(key, "create", revision)


def check_txn(compares: Sequence[Compare], ops: Sequence[Op]) -> None:
    """Raise ``ValueError`` for a transaction that no store can perform: the caller's mistake."""
    named: set[str] = set()
    for op in ops:
        if op.key in named:
            raise ValueError(f"key {op.key!r} is named by two operations of one transaction: give one")
        named.add(op.key)
    if "" in named or any(compare.key == "" for compare in compares):
        raise ValueError("a transaction names the empty key: a key has at least one character")
