"""One etcd server by gRPC, for sites that expose nothing else. Needs the extra ``etcd3``.

The messages are those of the package ``etcd3``; its client is not used: it neither resumes watches nor
renews logins, and hides whether a request was sent. gRPC has its own threads, which do not survive a fork:
open the store in the process that uses it, after any fork.
"""

from __future__ import annotations

import itertools
import math
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict, ParseDict

from cerebro_elastic.extending.errors import MissingExtra, pip_install
from cerebro_elastic.extending.store import (
    NAME,
    CertificateFiles,
    Endpoint,
    GatewayEndpoint,
    Json,
    NoAnswer,
    NotSent,
    Problem,
    StoreRefused,
    explain_silence,
    from_status,
    key_for_tls,
    tls_refused,
)

try:
    from etcd3 import etcdrpc
except TypeError as exc:  # protobuf says so where generated code is older than itself
    raise MissingExtra(
        "CEREBRO_ETCD_DRIVER=grpc: the package 'etcd3' is too old for the protobuf that is installed: "
        f"{pip_install('protobuf<3.21')}, or set PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python"
    ) from exc

_CALLS = {
    "auth/authenticate": ("Auth", "Authenticate"),
    "cluster/member/list": ("Cluster", "MemberList"),
    "kv/range": ("KV", "Range"),
    "kv/txn": ("KV", "Txn"),
    "lease/grant": ("Lease", "LeaseGrant"),
    # A stream in both directions: only the first message and its answer are used.
    "lease/keepalive": ("Lease", "LeaseKeepAlive"),
    "lease/revoke": ("Lease", "LeaseRevoke"),
    "maintenance/status": ("Maintenance", "Status"),
    "watch": ("Watch", "Watch"),
}
"""By the gateway's path: etcd's service and method, which name its messages."""

_OPTIONS = [
    # Fail-over, patience and repetition are not gRPC's job.
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 2000),  # it bounds the time to connect
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Each store has its own connections, and close() ends them.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
]
_CLOCK_SECONDS, _PATIENCE_SECONDS = 60.0, 1.0
"""How often the clocks are compared, and how long that may take."""
# gRPC's words for a request that no connection could take.
_NOT_CONNECTED = "failed to connect", "DNS resolution failed", "Name resolution failure"


class ChannelEndpoint(Endpoint):
    """Its connection is one channel."""

    _clock_due = -math.inf

    def version(self, seconds: float, token: str | None) -> str:
        return str(self.call("maintenance/status", {}, seconds, token)["version"])

    def call(self, path: str, body: Json, seconds: float, token: str | None) -> dict[str, Any]:
        channel = self._connected(seconds)
        invoke = channel.unary_unary(*_typed(path))
        try:
            answer = invoke(_message(path, body), timeout=seconds, metadata=_metadata(token))
        except (grpc.RpcError, ValueError) as exc:
            if not self._answered:
                self._forget(channel)
                explain_silence(self._address, self._settings, seconds)
            raise self.translated(exc) from exc
        self._answered = True
        if time.monotonic() > self._clock_due:
            self._clock_due = time.monotonic() + _CLOCK_SECONDS
            self._compare_clocks()
        return _json(answer)

    def _compare_clocks(self) -> None:
        """Answers of gRPC have no date. etcd answers HTTP at the same port, at least with its version; if a
        proxy before it blocks that, the clocks stay unknown."""
        try:
            with closing(GatewayEndpoint(self._address, self._settings)) as http:
                http.version(_PATIENCE_SECONDS, None)
        except (NotSent, NoAnswer, StoreRefused):
            self._clock_due = math.inf
        else:
            self.clock_ahead = http.clock_ahead

    def stream(self, path: str, body: Json, seconds: float, token: str | None) -> ChannelStream:
        # A member that is cut off from its leader then ends the stream instead of falling silent.
        metadata = [*_metadata(token), ("hasleader", "true")]
        invoke = self._connected(seconds).unary_stream(*_typed(path))
        try:
            # It lasts for ``seconds`` at most: gRPC cannot distinguish a quiet etcd from one that hangs.
            call = invoke(_message(path, body), timeout=seconds, metadata=metadata)
            first = next(call)
        except (grpc.RpcError, ValueError, StopIteration) as exc:
            raise self.translated(exc) from exc
        return ChannelStream(call, first, self)

    def _connect(self, seconds: float) -> grpc.Channel:
        settings = self._settings
        if settings.tls:
            credentials = grpc.ssl_channel_credentials(
                _bytes(settings.ca), _bytes(settings.key), _bytes(settings.cert)
            )
            return grpc.secure_channel(self._address, credentials, _OPTIONS)
        key = key_for_tls(self._address, settings, seconds)
        if key is None:
            return grpc.insecure_channel(self._address, _OPTIONS)
        with tempfile.TemporaryDirectory(prefix="cerebro-tls-") as folder:
            files = CertificateFiles.write(key, Path(folder))
            credentials = grpc.ssl_channel_credentials(
                _bytes(files.authority), _bytes(files.private_key), _bytes(files.certificate)
            )
        options = [*_OPTIONS, ("grpc.ssl_target_name_override", NAME)]
        return grpc.secure_channel(self._address, credentials, options)

    def translated(self, exc: Exception) -> Problem | StoreRefused:
        """The effect of a failed exchange on the request."""
        if isinstance(exc, ValueError):
            return NotSent(f"the channel is closed: {exc}")
        if not isinstance(exc, grpc.Call):
            return NoAnswer("the stream ended at once")
        code, details = exc.code().value[0], exc.details() or ""
        if "SSL_ERROR_SSL" in details:
            return tls_refused(str(self), self._settings, details)
        if exc.code() is grpc.StatusCode.UNAVAILABLE and any(words in details for words in _NOT_CONNECTED):
            encryption = self._settings.encryption
            return NotSent(f"cannot connect {encryption} ({details}): check that etcd expects that")
        return from_status(details, code, str(self))


class ChannelStream:
    """A ``Stream``."""

    def __init__(self, call: Any, first: Any, endpoint: ChannelEndpoint) -> None:
        self._call = call
        self._first = first
        self._endpoint = endpoint

    def messages(self) -> Iterator[Json]:
        try:
            for message in itertools.chain([self._first], self._call):
                yield _json(message)
        except grpc.RpcError as exc:
            raise self._endpoint.translated(exc) from exc

    def cut(self) -> None:
        self._call.cancel()

    def close(self) -> None:
        self._call.cancel()


def _bytes(file: Path | None) -> bytes | None:
    return None if file is None else file.read_bytes()


def _typed(path: str) -> tuple[str, Any, Any]:
    """A call's full name, how its request is written, and how its answer is read."""
    service, method = _CALLS[path]
    request = getattr(etcdrpc, f"{method}Request")
    answer = getattr(etcdrpc, f"{method}Response")
    return f"/etcdserverpb.{service}/{method}", request.SerializeToString, answer.FromString


def _message(path: str, body: Json) -> Any:
    # This etcd3 has no fragments yet: messages come whole, and may be large.
    request = getattr(etcdrpc, f"{_CALLS[path][1]}Request")()
    return ParseDict(dict(body), request, ignore_unknown_fields=True)


def _json(message: Any) -> dict[str, Any]:
    answer: dict[str, Any] = MessageToDict(message, preserving_proto_field_name=True)
    return answer


def _metadata(token: str | None) -> list[tuple[str, str]]:
    return [("token", token)] if token else []
