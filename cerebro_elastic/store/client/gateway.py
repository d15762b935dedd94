"""One etcd server by its JSON gateway, over HTTP: no protobuf and no gRPC threads, so that it is safe in
processes that fork.

urllib3 pools the connections. Its exceptions show whether a request was sent at all, which matters for a
transaction.
"""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from email.utils import parsedate_to_datetime
from http.client import BadStatusLine, RemoteDisconnected
from pathlib import Path
from textwrap import shorten
from typing import Any

from urllib3 import HTTPConnectionPool, HTTPResponse, HTTPSConnectionPool, Timeout
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import (
    ClosedPoolError,
    ConnectTimeoutError,
    HTTPError,
    NewConnectionError,
    ProtocolError,
    ReadTimeoutError,
)

from cerebro_elastic.config import StoreSettings, host_port, socket_path
from cerebro_elastic.errors import StoreRefused, causes
from cerebro_elastic.store.client.endpoint import Endpoint, Json
from cerebro_elastic.store.client.etcd_errors import (
    CONNECT_SECONDS,
    INVALID_ARGUMENT,
    UNAVAILABLE,
    NoAnswer,
    NotSent,
    Problem,
    check_name,
    explain_silence,
    from_error,
    from_status,
    key_for_tls,
    tls_refused,
    unreachable,
)

_CONNECTIONS = 10
"""The number of connections that are kept open; more are closed after their request."""
# At most: arrived bytes are read at once.
_READ_BYTES = 1 << 20
_ITSELF = re.compile(r"<[^<>]* object at 0x[0-9a-f]+>[:,] ")
"""The mention of its own objects in urllib3's messages."""


class GatewayEndpoint(Endpoint):
    """urllib3's pool is thread-safe, so that all threads share its connections."""

    def version(self, seconds: float, token: str | None) -> str:
        path = "/version"
        answer = self._json_from(path, self._send(path, None, seconds, token))
        if "etcdserver" not in answer:
            raise StoreRefused(f"{self} answered {path}, but names no etcd version: check that it is an etcd")
        return str(answer["etcdserver"])

    def call(self, path: str, body: Json, seconds: float, token: str | None) -> dict[str, Any]:
        path = f"/v3/{path}"
        answer = self._json_from(path, self._send(path, body, seconds, token))
        # A stream of gRPC answers with one message, wrapped.
        result: dict[str, Any] = answer.get("result", answer)
        return result

    def stream(self, path: str, body: Json, seconds: float, token: str | None) -> GatewayStream:
        response = self._send(f"/v3/{path}", body, seconds, token, stream=True)
        return GatewayStream(response, str(self))

    def _connect(self, seconds: float) -> HTTPConnectionPool:
        settings, path = self._settings, socket_path(self._address)
        if path is not None:
            return UnixSocketPool(path, maxsize=_CONNECTIONS)
        host, port = host_port(self._address)
        if settings.tls:
            return _TlsPool(
                host,
                port,
                maxsize=_CONNECTIONS,
                cert_reqs="CERT_REQUIRED",
                ca_certs=_text(settings.ca),  # else the system's
                cert_file=_text(settings.cert),
                key_file=_text(settings.key),
            )
        key = key_for_tls(self._address, settings, seconds)
        if key is None:
            return _Pool(host, port, maxsize=_CONNECTIONS)
        # Imported here: other servers do not need it.
        from cerebro_elastic.store.client.certificate import client_context

        context = client_context(key)
        return _TlsPool(host, port, maxsize=_CONNECTIONS, ssl_context=context, assert_hostname=False)

    def _send(
        self, path: str, body: Json | None, seconds: float, token: str | None, stream: bool = False
    ) -> HTTPResponse:
        """One HTTP exchange: POST of ``body``, or GET without one. The response is a good one."""
        headers = {"Authorization": token} if token else {}
        if stream:
            # A member that is cut off from its leader then ends the stream instead of falling silent.
            headers["Grpc-Metadata-hasleader"] = "true"
        data = None
        if body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        connections: HTTPConnectionPool = self._connected(seconds)
        sent = time.time()
        try:
            response = connections.urlopen(
                "GET" if data is None else "POST",
                path,
                data,
                headers,
                retries=False,
                redirect=False,
                timeout=Timeout(connect=min(CONNECT_SECONDS, seconds), read=seconds),
                preload_content=not stream,
            )
            if not 200 <= response.status < 300:
                raise from_response(response.status, response.data, str(self))
        except HTTPError as exc:
            if not self._answered:
                self._forget(connections)
                self._explain(exc, seconds)
            raise from_exception(exc, self._address, self._settings) from exc
        self._answered = True
        self._compare_clocks(response, sent)
        return response

    def _compare_clocks(self, response: HTTPResponse, sent: float) -> None:
        """By the answer's date, in whole seconds, to a request ``sent`` at this time of ours."""
        try:
            date = parsedate_to_datetime(response.headers["Date"]).timestamp()
        except (KeyError, TypeError, ValueError):
            return
        self.clock_ahead = max(0.0, sent - date - 1.0) + min(0.0, time.time() - date)

    def _explain(self, exc: HTTPError, seconds: float) -> None:
        """Check for a server other than the expected one; raises ``StoreRefused`` if there is one."""
        if not isinstance(exc, ProtocolError):
            return
        cause = exc.args[-1]
        if isinstance(cause, BadStatusLine) and not isinstance(cause, RemoteDisconnected):
            said = shorten(str(cause), 60, placeholder=" ...")
            raise StoreRefused(
                f"at {self._address} another server than etcd answers ({said}): check the port"
            ) from exc
        explain_silence(self._address, self._settings, seconds)

    def _json_from(self, path: str, response: HTTPResponse) -> dict[str, Any]:
        """The answer in a good response. etcd may report an error in this way too."""
        try:
            answer = json.loads(response.data)
        except ValueError as exc:
            raise StoreRefused(f"{self} answered {path}, but not in JSON: check that it is an etcd") from exc
        if not isinstance(answer, dict):
            raise StoreRefused(f"{self} answered {path} by {answer!r}: check that it is an etcd")
        if isinstance(answer.get("error"), dict):
            raise from_error(answer["error"], str(self))
        return answer


class GatewayStream:
    """A ``Stream``: lines of JSON."""

    def __init__(self, response: HTTPResponse, server: str) -> None:
        self._response = response
        self._server = server
        # A duplicate: at its end the thread that reads closes the response's own, at any time.
        self._socket = None if response.closed else socket.socket(fileno=os.dup(response.fileno()))

    def messages(self) -> Iterator[Json]:
        try:
            for line in self._lines():
                message = json.loads(line)
                if "error" in message:
                    raise from_error(message["error"], self._server)
                yield message["result"]
        except (HTTPError, OSError, ValueError) as exc:
            # Lost, silent for too long, or cut within a line.
            raise NoAnswer(str(exc)) from exc

    def _lines(self) -> Iterator[bytes]:
        rest = b""
        for chunk in self._response.stream(_READ_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from filter(None, lines)
        if rest:
            yield rest

    def cut(self) -> None:
        # Closing it would not wake the thread that reads.
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._response.close()
        if self._socket is not None:
            self._socket.close()


class _NamedServer:
    """A connection whose server's name is looked up within a limited time."""

    def connect(self) -> None:
        try:
            check_name(self.host)  # type: ignore[attr-defined]
        except OSError as exc:
            raise NewConnectionError(self, str(exc)) from exc
        super().connect()  # type: ignore[misc]


class _Connection(_NamedServer, HTTPConnection):  # type: ignore[misc]
    pass


class _TlsConnection(_NamedServer, HTTPSConnection):  # type: ignore[misc]
    pass


class _Pool(HTTPConnectionPool):  # type: ignore[misc]
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):  # type: ignore[misc]
    ConnectionCls = _TlsConnection


class _UnixSocketConnection(HTTPConnection):  # type: ignore[misc]
    def __init__(self, *args: Any, path: str, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._path = path

    def connect(self) -> None:
        made = socket.socket(socket.AF_UNIX)
        try:
            made.settimeout(self.timeout)
            made.connect(self._path)
        except OSError as exc:
            made.close()
            # urllib3's exceptions if nothing was sent.
            raise NewConnectionError(self, str(exc)) from exc
        self.sock = made


class UnixSocketPool(HTTPConnectionPool):  # type: ignore[misc]
    """Connections to the server that listens on the socket at ``path``."""

    ConnectionCls = _UnixSocketConnection

    def __init__(self, path: str, **settings: Any) -> None:
        super().__init__("localhost", path=path, **settings)


def from_response(status: int, body: bytes, server: str) -> Problem:
    """A response with an error status, from etcd or from a proxy before it."""
    try:
        answer = json.loads(body)
        # Streams wrap the error once more.
        error = answer["error"] if isinstance(answer["error"], dict) else answer
        return from_error(error, server)
    except (ValueError, KeyError, TypeError):
        pass
    code = UNAVAILABLE if status >= 500 else INVALID_ARGUMENT
    excerpt = shorten(body.decode(errors="replace"), 80, placeholder=" ...")
    return from_status(f"HTTP {status} {excerpt} (no answer of an etcd)", code, server)


def from_exception(
    exc: HTTPError, address: str, settings: StoreSettings
) -> NotSent | NoAnswer | StoreRefused:
    """A failed exchange; ``StoreRefused`` where TLS does not match, because waiting does not help."""
    chain = list(causes(exc))
    tls = next((cause for cause in chain if isinstance(cause, ssl.SSLError)), None)
    # An end of file inside TLS is a lost connection, as it is without.
    if tls is not None and not isinstance(tls, ssl.SSLEOFError):
        return tls_refused(f"etcd at {address}", settings, str(tls))
    if isinstance(exc, NewConnectionError | ConnectTimeoutError | ClosedPoolError):
        problem = next((cause for cause in chain if isinstance(cause, OSError)), exc)
        return NotSent(unreachable(address, problem))
    if isinstance(exc, ReadTimeoutError):
        return NoAnswer("the program that listens there is silent")
    if any(isinstance(cause, RemoteDisconnected) for cause in chain):
        return NoAnswer("the program that listens there ended the connection without an answer")
    return NoAnswer(_ITSELF.sub("", str(exc)))


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
