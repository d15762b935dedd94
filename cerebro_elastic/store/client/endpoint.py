"""The interface of a driver to one etcd server: requests and answers.

They have the form of etcd's JSON gateway, which is protobuf's own JSON of etcd's gRPC messages: paths
such as ``kv/range``, base64 for bytes, strings for 64-bit numbers.
"""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Protocol, TypeAlias

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.store.client.base import Change, ChangeBatch, Compare, KeyValue, Op, Put
from cerebro_elastic.store.client.etcd_errors import NotSent

Json: TypeAlias = Mapping[str, Any]


class Stream(Protocol):
    """The open answer to a streaming request."""

    def messages(self) -> Iterator[Json]:
        """The stream's messages, until etcd ends it. Raises as ``Endpoint``; ``NoAnswer`` if the stream is
        lost or was silent for too long."""

    def cut(self) -> None:
        """End the stream from another thread than the one that reads."""

    def close(self) -> None: ...


class Endpoint(ABC):
    """One server, connected to on first use: with TLS, if the settings or the server want it.

    All methods may be called from any thread; ``seconds`` bounds the wait for an answer, ``token`` is that of
    a login. Raises ``NotSent``, ``NoAnswer``, ``NoSpace``, or ``StoreRefused``.
    """

    def __init__(self, address: str, settings: StoreSettings) -> None:
        self._address = address
        self._settings = settings
        self._connection: Any = None
        self._closed = False
        self._answered = False
        """Whether it has ever answered. Until then the server there may become another one."""
        self.clock_ahead = 0.0
        """By how many seconds this machine's clock was ahead of the server's at its last answer, for certain;
        0 if the driver does not see the server's clock."""

    def __str__(self) -> str:
        return str(self._settings)

    @abstractmethod
    def version(self, seconds: float, token: str | None) -> str:
        """The server's version, such as ``3.5.21``."""

    @abstractmethod
    def call(self, path: str, body: Json, seconds: float, token: str | None) -> dict[str, Any]:
        """The answer to one request, sent once."""

    @abstractmethod
    def stream(self, path: str, body: Json, seconds: float, token: str | None) -> Stream:
        """The answer to a request for a stream, which may be silent for ``seconds``."""

    def close(self) -> None:
        """Release connections and threads."""
        self._closed = True
        if self._connection is not None:
            self._connection.close()

    @abstractmethod
    def _connect(self, seconds: float) -> Any:
        """A new connection; it may be a pool of several."""

    def _connected(self, seconds: float) -> Any:
        if self._closed:
            raise NotSent("the connection is closed")
        if self._connection is None:
            self._connection = self._connect(seconds)
        return self._connection

    def _forget(self, connection: Any) -> None:
        """Reconnect at the next request."""
        if self._connection is connection:
            self._connection = None
        connection.close()


def key_json(key: str) -> str:
    return _base64(key.encode(errors="surrogateescape"))


def range_json(prefix: str) -> dict[str, str]:
    """``key`` and ``range_end`` that span all keys under ``prefix``; all keys if it is empty."""
    if not prefix:
        return {"key": _base64(b"\0"), "range_end": _base64(b"\0")}
    first = prefix.encode()
    # UTF-8 has no byte 0xff, so the last byte can always be counted up.
    return {"key": _base64(first), "range_end": _base64(first[:-1] + bytes([first[-1] + 1]))}


def txn_json(compares: Sequence[Compare], ops: Sequence[Op]) -> dict[str, Any]:
    return {
        "compare": [_compare_json(compare) for compare in compares],
        "success": [_op_json(op) for op in ops],
    }


def revision_of(answer: Json) -> int:
    return int(answer["header"]["revision"])


def item_from(kv: Json) -> KeyValue:
    # The gateway leaves out empty and zero values.
    return KeyValue(
        key=_key_from(kv),
        value=base64.b64decode(kv.get("value", "")),
        create_revision=int(kv["create_revision"]),
        mod_revision=int(kv["mod_revision"]),
        lease=int(kv.get("lease", 0)),
    )


def batches_from(results: Iterable[Json]) -> Iterator[ChangeBatch]:
    """Watch responses as batches of one revision each.

    etcd never splits a revision between responses, but it may send one response in fragments: their events
    are kept until the last has arrived, so that a lost connection never shows half a revision.
    """
    events: list[Json] = []
    for result in results:
        events += result.get("events", ())
        if result.get("fragment"):
            continue
        for revision, group in groupby(events, key=lambda event: int(event["kv"]["mod_revision"])):
            yield ChangeBatch(revision, tuple(_change_from(event, revision) for event in group))
        events = []


def _change_from(event: Json, revision: int) -> Change:
    kv = event["kv"]
    deleted = event.get("type") == "DELETE"
    return Change(_key_from(kv), revision, None if deleted else item_from(kv))


def _compare_json(compare: Compare) -> dict[str, str]:
    target = "CREATE" if compare.target == "create" else "MOD"
    return {
        "key": key_json(compare.key),
        "target": target,
        "result": "EQUAL",
        f"{target.lower()}_revision": str(compare.revision),
    }


def _op_json(op: Op) -> dict[str, Any]:
    if isinstance(op, Put):
        put = {"key": key_json(op.key), "value": _base64(op.value), "lease": str(op.lease)}
        return {"request_put": put}
    return {"request_delete_range": {"key": key_json(op.key)}}


def _key_from(kv: Json) -> str:
    # Others may have written keys that are no text: they can be named, and deleted.
    return base64.b64decode(kv["key"]).decode(errors="surrogateescape")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
