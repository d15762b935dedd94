"""The gateway's JSON, where a real server cannot be made to show every case."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest

from cerebro_elastic.store.client.endpoint import batches_from, range_json
from cerebro_elastic.store.client.etcd_errors import NoAnswer, NoSpace, NotSent, Refused, from_error
from cerebro_elastic.store.client.gateway import from_response


def event(key: str, revision: int) -> dict[str, Any]:
    kv = {
        "key": base64.b64encode(key.encode()).decode(),
        "create_revision": "1",
        "mod_revision": str(revision),
    }
    return {"kv": kv}


def result(*events: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"header": {}, "events": list(events), **more}


def seen(results: list[dict[str, Any]]) -> list[tuple[int, str]]:
    return [
        (batch.revision, "".join(change.key for change in batch.changes)) for batch in batches_from(results)
    ]


def test_a_response_of_several_revisions() -> None:
    assert seen([result(event("a", 2), event("b", 2), event("a", 5))]) == [(2, "ab"), (5, "a")]


def test_fragments_are_joined() -> None:
    whole = [result(event("a", 2), event("b", 3), fragment=True), result(event("c", 3), event("d", 4))]
    assert seen(whole) == [(2, "a"), (3, "bc"), (4, "d")]


@pytest.mark.parametrize(
    ("prefix", "first", "end"), [("", b"\0", b"\0"), ("/a", b"/a", b"/b"), ("ÿ", b"\xc3\xbf", b"\xc3\xc0")]
)
def test_a_prefix_as_a_range(prefix: str, first: bytes, end: bytes) -> None:
    spanned = {name: base64.b64decode(value) for name, value in range_json(prefix).items()}
    assert spanned == {"key": first, "range_end": end}


@pytest.mark.parametrize(
    ("message", "code", "kind"),
    [
        ("etcdserver: request timed out", 14, NoAnswer),
        ("etcdserver: too many requests", 8, NotSent),
        ("etcdserver: mvcc: database space exceeded", 8, NoSpace),
        ("etcdserver: permission denied", 7, Refused),
        ("something new", 99, Refused),
    ],
)
def test_the_effect_of_each_error_on_the_request(message: str, code: int, kind: type[Exception]) -> None:
    error = from_error({"message": message, "code": code}, "etcd at here:1")
    assert type(error) is kind
    assert message in str(error)


@pytest.mark.parametrize(
    ("status", "body", "kind", "pattern"),
    [
        (
            400,
            '{"error": "no such thing", "code": 3, "message": "no such thing"}',
            Refused,
            "no such thing; check",
        ),
        (503, '{"error": {"grpc_code": 14, "message": "no leader"}}', NoAnswer, "^no leader$"),
        (502, "<html>bad gateway</html>", NoAnswer, "^HTTP 502 <html>"),
        (404, "[]", Refused, r"HTTP 404 \[\]"),
    ],
)
def test_a_response_with_an_error_status(status: int, body: str, kind: type[Exception], pattern: str) -> None:
    error = from_response(status, body.encode(), "etcd")
    assert type(error) is kind
    assert re.search(pattern, str(error))
