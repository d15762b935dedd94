"""The effect of etcd's errors, by gRPC and by its JSON gateway, on a request: was it performed, may it be
sent again? And the first contact with a server: is its name known, does it speak TLS, and can anything be
reached at all?"""

from __future__ import annotations

import ipaddress
import queue
import socket
import ssl
import threading
from collections.abc import Mapping
from typing import Any

from cerebro_elastic.config import StoreSettings, host_port, socket_path
from cerebro_elastic.errors import StoreRefused
from cerebro_elastic.system.departure import within
from cerebro_elastic.system.run_key import RunKey

# gRPC's status codes that are distinguished.
INVALID_ARGUMENT, NOT_FOUND = 3, 5
OUT_OF_RANGE, UNAVAILABLE, UNAUTHENTICATED = 11, 14, 16
# Cancelled, unknown, deadline exceeded, aborted, internal, unavailable: it may have happened or not.
_UNSURE = frozenset({1, 2, 4, 10, 13, UNAVAILABLE})

_LOGIN = "CEREBRO_ETCD_USER and CEREBRO_ETCD_PASSWORD"
_ADVICE = {
    "authentication failed": f"check {_LOGIN}",
    "user name is empty": f"it requires a login: set {_LOGIN}",
    "authentication is not enabled": f"it has no login: leave out {_LOGIN}",
    "denied": f"let the user of {_LOGIN} read and write the keys of the run",
    "too many operations": "make smaller transactions, or start etcd with a higher --max-txn-ops",
    "too large": "write smaller values, or start etcd with a higher --max-request-bytes",
    "no answer of an etcd": "check that this is an etcd's address for clients; where its JSON gateway is "
    "switched off, set CEREBRO_ETCD_DRIVER=grpc",
    "larger than max": "write smaller values, or start etcd with a higher --max-request-bytes",
}


def tls_refused(server: str, settings: StoreSettings, cause: str) -> StoreRefused:
    """TLS that does not match; waiting does not help."""
    if settings.tls:
        return StoreRefused(
            f"{server} does not accept the connection {settings.encryption} ({cause}): check "
            "CEREBRO_ETCD_CA, _CERT and _KEY, and that the server speaks TLS under this name"
        )
    return StoreRefused(
        f"{server} has a certificate that the run's key did not make ({cause}): if it is the run's own etcd, "
        "take the file `key` beside its data; for another etcd set CEREBRO_ETCD_CA, _CERT and _KEY"
    )


class NotSent(Exception):
    """The request did not reach etcd, or etcd turned it away undone: it may be sent again."""


class NoAnswer(Exception):
    """The request was sent, and may have been performed or not."""


class NoSpace(Exception):
    """etcd's database is full. The request was turned away undone, but for one case: a transaction that
    was let in before etcd noticed is performed and answered in this way all the same."""


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


Problem = NotSent | NoAnswer | NoSpace | Refused


def from_status(message: str, code: int, server: str) -> Problem:
    """The exception for etcd's ``message`` and gRPC's status ``code``."""
    if "too many requests" in message:
        return NotSent(message)
    if "database space exceeded" in message:
        return NoSpace(message)
    if code in _UNSURE:
        return NoAnswer(message)
    advice = next((advice for words, advice in _ADVICE.items() if words in message), "check the request")
    return Refused(f"{server} refused: {message}; {advice}", code)


def from_error(error: Mapping[str, Any], server: str) -> Problem:
    """The exception for etcd's error object (``message`` and ``code``)."""
    code = int(error.get("code") or error.get("grpc_code") or 0)
    return from_status(str(error.get("message", error)), code, server)


CONNECT_SECONDS = 2.0


def key_for_tls(address: str, settings: StoreSettings, seconds: float) -> RunKey | None:
    """The run's key, if the server at ``address`` speaks TLS though the settings do not say so: then it is an
    etcd of the run's own (``certificate.py``). Raises ``NotSent`` if no server can be reached."""
    if settings.run_key is None or settings.tls or socket_path(address) is not None:
        return None
    return settings.run_key if _shakes_hands(address, seconds) else None


def explain_silence(address: str, settings: StoreSettings, seconds: float) -> None:
    """Find out why a server gave no answer to a connection without TLS. Raises ``StoreRefused`` if it speaks
    TLS, and ``NotSent`` if it is gone."""
    if settings.run_key is not None or settings.tls or socket_path(address) is not None:
        return
    if _shakes_hands(address, seconds):
        raise StoreRefused(
            f"etcd at {address} does not accept a connection without TLS: for the run's own etcd, name by "
            "CEREBRO_RUN_KEY_FILE a copy of the run's key, the file `key` beside its data; for another etcd "
            "set CEREBRO_ETCD_CA, _CERT and _KEY"
        )


def _shakes_hands(address: str, seconds: float) -> bool:
    # The server is not trusted by this: its certificate is checked when the connections are made.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        check_name(host_port(address)[0])
        with socket.create_connection(host_port(address), min(CONNECT_SECONDS, seconds)) as connection:
            return _greets(context, connection)
    except OSError as exc:
        raise NotSent(unreachable(address, exc)) from exc


def _greets(context: ssl.SSLContext, connection: socket.socket) -> bool:
    try:
        context.wrap_socket(connection).close()
    except ssl.SSLError as exc:
        # An alert is TLS, too: the server may want a certificate of ours.
        return "ALERT" in (exc.reason or "")
    except (ConnectionError, TimeoutError):
        return (
            False  # a server without TLS may end a connection that it does not understand, or wait for more
        )
    return True


def unreachable(address: str, problem: BaseException) -> str:
    """A sentence on why no server can be reached at ``address``, and what to check."""
    match problem:
        case socket.gaierror():
            return f"the name in {address} is not known here ({problem.strerror}): check it"
        case ConnectionRefusedError() | FileNotFoundError():
            return f"nothing listens at {address}: check the port, and that etcd runs"
        case TimeoutError():
            return f"no machine answers at {address}: check the address, and that no firewall is in between"
    return f"cannot connect to {address}: {getattr(problem, 'strerror', None) or problem}"


_NAME_SECONDS, _LEAST_NAME_SECONDS = 5.0, 0.3
"""How long a name server may take to answer: normally, and if this process should have left."""


def check_name(host: str) -> None:
    """Raise ``OSError`` unless ``host`` is an address, or a name that is known here in time.

    ``getaddrinfo`` has no time limit, and no signal interrupts it. Where no name server answers it takes tens
    of seconds.
    """
    try:
        ipaddress.ip_address(host.partition("%")[0])
        return
    except ValueError:
        pass
    answers: queue.SimpleQueue[OSError | None] = queue.SimpleQueue()
    # It cannot be ended. Nobody waits for it.
    threading.Thread(target=_look_up, args=(host, answers), name=f"look up {host}", daemon=True).start()
    try:
        problem = answers.get(timeout=within(_NAME_SECONDS, _LEAST_NAME_SECONDS))
    except queue.Empty:
        problem = socket.gaierror(socket.EAI_AGAIN, "no name server answers")
    if problem is not None:
        raise problem


def _look_up(host: str, answers: queue.SimpleQueue[OSError | None]) -> None:
    try:
        socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        answers.put(None)
    except OSError as exc:
        answers.put(exc)
    except UnicodeError as exc:
        answers.put(OSError(str(exc)))
