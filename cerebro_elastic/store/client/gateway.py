"""One etcd server by its JSON gateway, over HTTP: no protobuf and no gRPC threads, so that it is safe in
processes that fork.

URLs, TLS and the HTTP session are ``etcd3gw``'s. Its ``post`` is not used: it hides whether a request
was sent at all, which a transaction must know, and drops etcd's error codes; nor is its ``watch``,
which does not resume.
"""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
from collections.abc import Iterator
from textwrap import shorten
from typing import Any

import requests
from etcd3gw.client import Etcd3Client
from urllib3.exceptions import NewConnectionError

from cerebro_elastic.config import StoreSettings, host_port
from cerebro_elastic.errors import StoreRefused
from cerebro_elastic.store.client.etcd_errors import (
    INVALID_ARGUMENT,
    TLS_ADVICE,
    UNAVAILABLE,
    NoAnswer,
    NotSent,
    Problem,
    from_error,
    from_status,
)
from cerebro_elastic.store.client.wire import Json

_CONNECT_SECONDS = 2.0
# At most: what has come is read at once.
_READ_BYTES = 1 << 20
_ITSELF = re.compile(r"<[^<>]* object at 0x[0-9a-f]+>[:,] ")
"""The mention of its own objects in urllib3's messages."""


class GatewayEndpoint:
    """An ``Endpoint``. urllib3's pool is thread-safe and the session never changes, so that all threads
    share its connections."""

    def __init__(self, address: str, settings: StoreSettings) -> None:
        self._settings = settings
        self._client = _client(address, settings)

    def __str__(self) -> str:
        return f"etcd at {', '.join(self._settings.endpoints)}"

    def version(self, seconds: float, token: str | None) -> str:
        url = f"{self._client.base_url}/version"
        answer = self._json_from(self._send(url, None, seconds, token))
        if "etcdserver" not in answer:
            raise StoreRefused(f"{url} answered, but tells no etcd version: check that it is an etcd")
        return str(answer["etcdserver"])

    def call(self, path: str, body: Json, seconds: float, token: str | None) -> dict[str, Any]:
        answer = self._json_from(self._send(self._client.get_url(path), body, seconds, token))
        # What is a stream in gRPC answers with one message, wrapped.
        result: dict[str, Any] = answer.get("result", answer)
        return result

    def stream(self, path: str, body: Json, seconds: float, token: str | None) -> GatewayStream:
        response = self._send(self._client.get_url(path), body, seconds, token, stream=True)
        return GatewayStream(response, str(self))

    def close(self) -> None:
        self._client.session.close()

    def _send(
        self, url: str, body: Json | None, seconds: float, token: str | None, stream: bool = False
    ) -> requests.Response:
        """One HTTP exchange: POST of ``body``, or GET without one. The response is a good one."""
        headers = {"Authorization": token} if token else {}
        if stream:
            # A member that is cut off from its leader then ends the stream instead of falling silent.
            headers["Grpc-Metadata-hasleader"] = "true"
        method = "GET" if body is None else "POST"
        timeout = min(_CONNECT_SECONDS, seconds), seconds
        try:
            response = self._client.session.request(
                method, url, json=body, headers=headers, timeout=timeout, stream=stream
            )
        except requests.RequestException as exc:
            raise from_exception(exc, str(self), self._settings.encryption) from exc
        if not response.ok:
            with response:
                raise from_response(response, str(self))
        return response

    def _json_from(self, response: requests.Response) -> dict[str, Any]:
        """The answer in a good response. etcd may report an error in this way too."""
        try:
            answer = response.json()
        except requests.JSONDecodeError as exc:
            raise StoreRefused(f"{response.url} answered, but not in JSON: check that it is an etcd") from exc
        if not isinstance(answer, dict):
            raise StoreRefused(f"{response.url} answered {answer!r}: check that it is an etcd")
        if isinstance(answer.get("error"), dict):
            raise from_error(answer["error"], str(self))
        return answer


class GatewayStream:
    """A ``Stream``: lines of JSON."""

    def __init__(self, response: requests.Response, server: str) -> None:
        self._response = response
        self._server = server

    def messages(self) -> Iterator[Json]:
        try:
            for line in self._response.iter_lines(chunk_size=_READ_BYTES):
                message = json.loads(line)
                if "error" in message:
                    raise from_error(message["error"], self._server)
                yield message["result"]
        except (requests.RequestException, ValueError) as exc:
            # Lost, silent for too long, or cut within a line.
            raise NoAnswer(str(exc)) from exc

    def cut(self) -> None:
        # Closing it would not wake the thread that reads.
        try:
            with socket.socket(fileno=os.dup(self._response.raw.fileno())) as duplicate:
                duplicate.shutdown(socket.SHUT_RDWR)
        except (OSError, ValueError):
            pass

    def close(self) -> None:
        self._response.close()


def from_response(response: requests.Response, server: str) -> Problem:
    """A response with an error status, from etcd or from what stands in front of it."""
    try:
        answer = response.json()
        # Streams wrap the error once more.
        error = answer["error"] if isinstance(answer["error"], dict) else answer
        return from_error(error, server)
    except (requests.JSONDecodeError, KeyError, TypeError):
        pass
    code = UNAVAILABLE if response.status_code >= 500 else INVALID_ARGUMENT
    excerpt = shorten(response.text, 80, placeholder=" ...")
    return from_status(f"HTTP {response.status_code} {excerpt} (no answer of an etcd)", code, server)


def from_exception(
    exc: requests.RequestException, server: str, encryption: str
) -> NotSent | NoAnswer | StoreRefused:
    """A failed exchange; ``StoreRefused`` where TLS does not match, which waiting will not mend."""
    cause: BaseException | None = exc
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    # An end of file inside TLS is a lost connection, as it is without.
    if cause is not None and not isinstance(cause, ssl.SSLEOFError):
        return StoreRefused(f"{server} does not accept the connection {encryption} ({cause}): {TLS_ADVICE}")
    reason = getattr(exc.args[0] if exc.args else None, "reason", exc)
    message = _ITSELF.sub("", str(reason))
    if isinstance(exc, requests.ConnectTimeout) or isinstance(reason, NewConnectionError):
        return NotSent(f"cannot connect: {message}")
    return NoAnswer(message)


def _client(address: str, settings: StoreSettings) -> Etcd3Client:
    host, port = host_port(address)
    session = requests.Session()
    # etcd is spoken to directly: no proxy, no .netrc.
    session.trust_env = False
    if settings.ca is not None:
        session.verify = str(settings.ca)
    if settings.cert is not None and settings.key is not None:
        session.cert = str(settings.cert), str(settings.key)
    protocol = "https" if settings.tls else "http"
    # Without a path etcd3gw would ask for the version once more.
    return Etcd3Client(host, port, protocol=protocol, api_path="/v3/", session=session)
