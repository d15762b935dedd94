"""Requests to etcd's v3 JSON gateway, over several endpoints, with patience and login.

URLs, TLS and the HTTP session are ``etcd3gw``'s. Its ``post`` is not used: it hides whether a request
was sent at all, which a transaction must know, and drops etcd's error codes; nor is its ``watch``,
which does not resume.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import requests
from etcd3gw.client import Etcd3Client

from cerebro_elastic.clock import Clock
from cerebro_elastic.config import StoreSettings, host_port
from cerebro_elastic.errors import StoreError, StoreRefused, StoreUnavailable, TxnUnknown
from cerebro_elastic.store.answers import (
    NoAnswer,
    NotSent,
    Refused,
    from_exception,
    from_response,
    json_from,
)
from cerebro_elastic.store.wire import Json

_T = TypeVar("_T")

_OLDEST = (3, 4)
_INCONSISTENT = (3, 5, 0), (3, 5, 5)
_CONNECT_SECONDS = 2.0
_FIRST_DELAY, _LONGEST_DELAY = 0.05, 1.0


class Gateway:
    """One etcd cluster behind its endpoints. All methods may be called from any thread."""

    def __init__(self, settings: StoreSettings, clock: Clock) -> None:
        self.settings = settings
        self._clock = clock
        self._clients = [_client(endpoint, settings) for endpoint in settings.endpoints]
        self._current = 0
        self._version: str | None = None
        self._token: str | None = None
        self._login_lock = threading.Lock()
        self._closing = threading.Event()

    def __str__(self) -> str:
        return f"etcd at {', '.join(self.settings.endpoints)}"

    def version(self) -> str:
        """The server's version, asked for and judged before anything else is."""
        if self._version is None:
            version = self._patiently(self._get_version, (NotSent, NoAnswer))
            _judge(version, self)
            self._version = version
        return self._version

    def post(self, path: str, body: Json) -> dict[str, Any]:
        """The answer to a request that may be repeated: retried over the endpoints within patience."""
        self.version()
        return self._patiently(
            lambda client, seconds: json_from(self._post(client, path, body, seconds), str(self)),
            (NotSent, NoAnswer),
        )

    def post_once(self, path: str, body: Json) -> dict[str, Any]:
        """The answer to a request that is sent once; retried only while it surely was not sent.

        Raises ``TxnUnknown`` if it was sent and no answer came within patience.
        """
        self.version()
        patience = self.settings.patience
        try:
            return self._patiently(
                lambda client, _: json_from(self._post(client, path, body, patience), str(self)), (NotSent,)
            )
        except NoAnswer as exc:
            raise TxnUnknown(
                f"{self} did not answer a transaction ({exc}): it may have happened or not; "
                f"read its keys to see"
            ) from exc

    def stream(self, path: str, body: Json, seconds: float) -> requests.Response:
        """The open answer to a streaming request, tried once at one endpoint; ``seconds`` is the longest
        silence allowed in it. Raises ``NotSent`` or ``NoAnswer``; the next try takes the next endpoint."""
        client = self._clients[self._current]
        try:
            return self._post(client, path, body, seconds, stream=True)
        except (NotSent, NoAnswer):
            self._fail_over(client)
            raise

    def forget_login(self) -> None:
        """Log in anew before the next request."""
        self._token = None

    def unavailable(self, problem: Exception) -> StoreUnavailable:
        """The error for patience that is over, because of ``problem``."""
        return StoreUnavailable(
            f"{self} did not answer for {self.settings.patience:g} s ({problem}): check that it runs, that "
            f"it can be reached from here, that CEREBRO_ETCD_ENDPOINTS names it, and that it is to be "
            f"spoken to {self.settings.encryption}"
        )

    def close(self) -> None:
        self._closing.set()
        for client in self._clients:
            client.session.close()

    def _patiently(
        self, attempt: Callable[[Etcd3Client, float], _T], again: tuple[type[Exception], ...]
    ) -> _T:
        """``attempt`` at one endpoint after the other, while it raises ``again`` and patience lasts."""
        patience = self.settings.patience
        deadline = self._clock.now() + patience
        tries = 0
        while True:
            if self._closing.is_set():
                raise StoreError(f"the connection to {self} was closed: open another store")
            client = self._clients[self._current]
            try:
                return attempt(client, patience / (len(self._clients) + 1))
            except again as exc:
                problem = exc
            self._fail_over(client)
            tries += 1
            # Wait only after a round over all endpoints.
            rounds, rest = divmod(tries, len(self._clients))
            delay = 0.0 if rest else min(_LONGEST_DELAY, _FIRST_DELAY * 2 ** (rounds - 1))
            if self._clock.now() + delay >= deadline:
                raise self.unavailable(problem) from problem
            self._closing.wait(delay)

    def _fail_over(self, failed: Etcd3Client) -> None:
        # Another thread may have gone on to the next endpoint already.
        if self._clients[self._current] is failed:
            self._current = (self._current + 1) % len(self._clients)

    def _post(
        self, client: Etcd3Client, path: str, body: Json, seconds: float, stream: bool = False
    ) -> requests.Response:
        """One POST; with a new login and once more if etcd turns it away because the login is over."""
        url = client.get_url(path)
        token = self._login(client, seconds)
        try:
            return self._send(client, url, body, seconds, token, stream)
        except Refused as refusal:
            if token is None or not refusal.login_is_over:
                raise
        if self._token == token:
            self.forget_login()
        return self._send(client, url, body, seconds, self._login(client, seconds), stream)

    def _login(self, client: Etcd3Client, seconds: float) -> str | None:
        """The token of the present login; ``None`` for etcd without login."""
        if self.settings.user is None:
            return None
        with self._login_lock:
            if self._token is None:
                self._token = self._new_token(client, seconds)
            return self._token

    def _new_token(self, client: Etcd3Client, seconds: float) -> str:
        body = {"name": self.settings.user, "password": self.settings.password}
        try:
            response = self._send(client, client.get_url("auth/authenticate"), body, seconds)
            return str(json_from(response, str(self))["token"])
        except NoAnswer as exc:
            # The login, not the request behind it, was left without an answer.
            raise NotSent(f"no answer to the login: {exc}") from exc

    def _get_version(self, client: Etcd3Client, seconds: float) -> str:
        url = f"{client.base_url}/version"
        answer = json_from(self._send(client, url, None, seconds), str(self))
        if "etcdserver" not in answer:
            raise StoreRefused(f"{url} answered, but tells no etcd version: check that it is an etcd")
        return str(answer["etcdserver"])

    def _send(
        self,
        client: Etcd3Client,
        url: str,
        body: Json | None,
        seconds: float,
        token: str | None = None,
        stream: bool = False,
    ) -> requests.Response:
        """One HTTP exchange: POST of ``body``, or GET without one. The response is a good one."""
        headers = {"Authorization": token} if token else {}
        if stream:
            # A member that is cut off from its leader then ends the stream instead of falling silent.
            headers["Grpc-Metadata-hasleader"] = "true"
        method = "GET" if body is None else "POST"
        timeout = min(_CONNECT_SECONDS, seconds), seconds
        try:
            response = client.session.request(
                method, url, json=body, headers=headers, timeout=timeout, stream=stream
            )
        except requests.RequestException as exc:
            raise from_exception(exc, str(self), self.settings.encryption) from exc
        if not response.ok:
            with response:
                raise from_response(response, str(self))
        return response


def _client(endpoint: str, settings: StoreSettings) -> Etcd3Client:
    host, port = host_port(endpoint)
    session = requests.Session()
    # etcd is spoken to directly: no proxy, no .netrc. Nothing in the session changes from here on and
    # urllib3's pool is thread-safe, so that all threads share its connections.
    session.trust_env = False
    if settings.ca is not None:
        session.verify = str(settings.ca)
    if settings.cert is not None and settings.key is not None:
        session.cert = str(settings.cert), str(settings.key)
    protocol = "https" if settings.tls else "http"
    # Without a path etcd3gw would ask for the version once more.
    return Etcd3Client(host, port, protocol=protocol, api_path="/v3/", session=session)


def _judge(version: str, gateway: Gateway) -> None:
    """Refuse a server that is too old; warn of one that may lose data."""
    try:
        numbers = tuple(int(part) for part in version.split("-")[0].split("."))
    except ValueError:
        raise StoreRefused(
            f"{gateway} says that its version is {version!r}: check that it is an etcd"
        ) from None
    if numbers < _OLDEST:
        raise StoreRefused(
            f"{gateway} is version {version}: at least {_OLDEST[0]}.{_OLDEST[1]} is needed; "
            f"upgrade it to 3.5.6 or later, or give another endpoint"
        )
    oldest, newest = _INCONSISTENT
    if oldest <= numbers <= newest and not gateway.settings.loopback:
        warnings.warn(
            f"{gateway} is version {version}: 3.5.0 to 3.5.5 may make the members of a cluster differ "
            f"after a crash; upgrade it to 3.5.6 or later",
            stacklevel=2,
        )
