"""What an exchange with etcd's JSON gateway came to, when it was no success: the one border at which
the errors of HTTP, TLS and etcd become ours."""

from __future__ import annotations

import ssl
from typing import Any

import requests
from urllib3.exceptions import NewConnectionError

from cerebro_elastic.errors import StoreRefused
from cerebro_elastic.store.wire import Json

# gRPC's status codes, as far as they are told apart.
INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED = 3, 5, 7
OUT_OF_RANGE, UNAVAILABLE, UNAUTHENTICATED = 11, 14, 16
# Cancelled, unknown, deadline exceeded, aborted, internal, unavailable: it may have happened or not.
_UNSURE = frozenset({1, 2, 4, 10, 13, UNAVAILABLE})

_LOGIN = "CEREBRO_ETCD_USER and CEREBRO_ETCD_PASSWORD"
_ADVICE = {
    "authentication failed": f"check {_LOGIN}",
    "user name is empty": f"it asks for a login: set {_LOGIN}",
    "authentication is not enabled": f"it has no login: leave out {_LOGIN}",
    "denied": f"let the user of {_LOGIN} read and write the keys of the run",
    "space exceeded": "its database is full: compact, defragment, then disarm the alarm with etcdctl",
    "too many operations": "make smaller transactions, or start etcd with a higher --max-txn-ops",
    "too large": "write smaller values, or start etcd with a higher --max-request-bytes",
    "larger than max": "write smaller values, or start etcd with a higher --max-request-bytes",
}


class NotSent(Exception):
    """The request did not reach etcd, or etcd turned it away undone: it may be sent again."""


class NoAnswer(Exception):
    """The request was sent, and may have been performed or not."""


class Refused(StoreRefused):
    """A refusal with gRPC's status ``code``."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code

    @property
    def login_is_over(self) -> bool:
        """Whether a new login would help: then nothing was done, and the request may be sent again."""
        text = str(self)
        return self.code == UNAUTHENTICATED or "invalid auth token" in text or "auth store is old" in text


def from_error(error: Json, server: str) -> NotSent | NoAnswer | Refused:
    """etcd's error object (``message`` and ``code``) as what it means for the request."""
    message = str(error.get("message", error))
    code = int(error.get("code") or error.get("grpc_code") or 0)
    if "too many requests" in message:
        return NotSent(message)
    if code in _UNSURE:
        return NoAnswer(message)
    advice = next((advice for words, advice in _ADVICE.items() if words in message), "check the request")
    return Refused(f"{server} refused: {message}; {advice}", code)


def from_response(response: requests.Response, server: str) -> NotSent | NoAnswer | Refused:
    """A response with an error status, from etcd or from what stands in front of it."""
    try:
        answer = response.json()
        # Streams wrap the error once more.
        error = answer["error"] if isinstance(answer["error"], dict) else answer
        return from_error(error, server)
    except (requests.JSONDecodeError, KeyError, TypeError):
        pass
    code = UNAVAILABLE if response.status_code >= 500 else INVALID_ARGUMENT
    text = f"HTTP {response.status_code} {response.text[:200].strip()}"
    return from_error({"message": text, "code": code}, server)


def from_exception(
    exc: requests.RequestException, server: str, encryption: str
) -> NotSent | NoAnswer | StoreRefused:
    """A failed exchange; ``StoreRefused`` where TLS does not match, which waiting will not mend."""
    cause: BaseException | None = exc
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    # An end of file inside TLS is a lost connection, as it is without.
    if cause is not None and not isinstance(cause, ssl.SSLEOFError):
        return StoreRefused(
            f"{server} does not accept the connection {encryption} ({cause}): check CEREBRO_ETCD_CA, _CERT "
            f"and _KEY, and that the server speaks TLS under this name"
        )
    reason = getattr(exc.args[0] if exc.args else None, "reason", exc)
    if isinstance(exc, requests.ConnectTimeout) or isinstance(reason, NewConnectionError):
        return NotSent(f"cannot connect: {reason}")
    return NoAnswer(str(reason))


def json_from(response: requests.Response, server: str) -> dict[str, Any]:
    """The answer in a good response. etcd may report an error in this way too."""
    try:
        answer = response.json()
    except requests.JSONDecodeError as exc:
        raise StoreRefused(f"{response.url} answered, but not in JSON: check that it is an etcd") from exc
    if not isinstance(answer, dict):
        raise StoreRefused(f"{response.url} answered {answer!r}: check that it is an etcd")
    if isinstance(answer.get("error"), dict):
        raise from_error(answer["error"], server)
    return answer
