"""Requests to an etcd cluster over its endpoints, with retries and login."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.errors import MissingExtra, StoreError, StoreFull, StoreUnavailable, TxnUnknown
from cerebro_elastic.registry import load
from cerebro_elastic.store.client.endpoint import Endpoint, Json, Stream, revision_of
from cerebro_elastic.store.client.etcd_errors import NoAnswer, NoSpace, NotSent, Refused
from cerebro_elastic.store.client.etcd_program import check_version, login_holds, may_diverge
from cerebro_elastic.system.clock import Clock
from cerebro_elastic.system.departure import seconds_to_leave, within

_T = TypeVar("_T")

_MEMBERS = "cluster/member/list"
_LEAVING_PATIENCE, LEAST_PATIENCE = 1.0, 0.3
"""Seconds, in a process that must leave: before its deadline, and after it."""
_FIRST_DELAY, _LONGEST_DELAY = 0.05, 1.0


def open_endpoints(settings: StoreSettings) -> list[Endpoint]:
    """One for each address in ``settings``, by the driver that they name. Connects on first use.

    Raises ``MissingExtra`` if a package that the driver needs cannot be used.
    """
    try:
        driver: type[Endpoint] = load("cerebro.drivers", settings.driver)
    except MissingExtra as exc:
        raise MissingExtra(
            f"etcd driver {exc}; or leave CEREBRO_ETCD_DRIVER out for etcd's JSON gateway"
        ) from exc
    return [driver(address, settings) for address in settings.endpoints]


class Cluster:
    """One etcd cluster behind its endpoints. All methods may be called from any thread."""

    def __init__(self, settings: StoreSettings, clock: Clock) -> None:
        self.settings = settings
        self.revision = 0
        """The store's revision by the last answer."""
        self._clock = clock
        self._endpoints = open_endpoints(settings)
        self._current = 0
        self._version: str | None = None
        self._token: str | None = None
        self._login_lock = threading.Lock()
        self._closing = threading.Event()

    def __str__(self) -> str:
        return str(self.settings)

    def version(self) -> str:
        """The server's version, read and checked before any other request."""
        if self._version is None:
            version = self._retried(
                lambda endpoint, seconds: self._logged_in(endpoint, seconds, endpoint.version),
                (NotSent, NoAnswer),
            )
            check_version(version, str(self), "give another endpoint")
            self._version = version
            self._warn_of_divergence(version)
            self._warn_of_login(version)
        return self._version

    def _warn_of_divergence(self, version: str) -> None:
        """Warn of a version whose members may differ, unless the etcd is alone."""
        several = len(self.settings.endpoints) > 1 or not self.settings.loopback
        if several and may_diverge(version) and self._members() != 1:
            warnings.warn(
                f"{self} is version {version}: 3.5.0 to 3.5.5 may make the members of a cluster differ "
                f"after a crash; upgrade it to 3.5.6 or later",
                stacklevel=3,
            )

    def _warn_of_login(self, version: str) -> None:
        """Warn of a login that does not keep strangers out, where they may reach it."""
        settings = self.settings
        if settings.user is None or settings.trusted or settings.loopback or login_holds(version):
            return
        warnings.warn(
            f"{self}, version {version}: anyone who reaches it can disable its login (GHSA-q8m4-xhhv-38mg); "
            "upgrade it to 3.6.9, 3.5.28, 3.4.42 or later, or start it with --client-cert-auth",
            stacklevel=3,
        )

    def _members(self) -> int:
        """How many members the etcd has; 0 if it does not say."""

        def asked(endpoint: Endpoint, seconds: float) -> dict[str, Any]:
            return self._logged_in(
                endpoint, seconds, lambda seconds, token: endpoint.call(_MEMBERS, {}, seconds, token)
            )

        with suppress(Refused):
            return len(self._retried(asked, (NotSent, NoAnswer)).get("members", ()))
        return 0

    @property
    def clock_ahead(self) -> float:
        """The seconds by which this machine's clock is ahead of the present server's."""
        return self._endpoints[self._current].clock_ahead

    @property
    def patience(self) -> float:
        """Seconds for which an operation is repeated: few in a process that is leaving, since none of its
        remaining work is worth a longer wait."""
        if seconds_to_leave() == math.inf:
            return self.settings.patience
        return min(self.settings.patience, within(_LEAVING_PATIENCE, LEAST_PATIENCE))

    def call(self, path: str, body: Json) -> dict[str, Any]:
        """The answer to a request that may be repeated: retried over the endpoints within patience."""
        self.version()
        return self._retried(
            lambda endpoint, seconds: self._send(endpoint, path, body, seconds), (NotSent, NoAnswer, NoSpace)
        )

    def call_once(self, path: str, body: Json, undone: Callable[[], bool]) -> dict[str, Any]:
        """The answer to a request that is sent once; retried only while it certainly was not performed.
        ``undone`` says whether a request that a full etcd turned away certainly was not.

        Raises ``TxnUnknown`` if it was sent and no answer came within patience.
        """
        self.version()

        def attempt(endpoint: Endpoint, _: float) -> dict[str, Any]:
            try:
                return self._send(endpoint, path, body, self.patience)
            except NoSpace as exc:
                if undone():
                    raise
                raise NoAnswer(str(exc)) from exc

        try:
            return self._retried(attempt, (NotSent, NoSpace))
        except NoAnswer as exc:
            raise TxnUnknown(
                f"{self} did not answer a transaction ({exc}): it may have happened or not; "
                f"read its keys to see"
            ) from exc

    def stream(self, path: str, body: Json, seconds: float) -> Stream:
        """The open answer to a streaming request, tried once at one endpoint; ``seconds`` is the longest
        silence allowed in it. Raises ``NotSent`` or ``NoAnswer``; the next try takes the next endpoint."""
        endpoint = self._endpoints[self._current]
        try:
            return self._logged_in(
                endpoint, seconds, lambda seconds, token: endpoint.stream(path, body, seconds, token)
            )
        except (NotSent, NoAnswer):
            self._fail_over(endpoint)
            raise

    def unavailable(self, problem: Exception) -> StoreUnavailable:
        """The error for ``problem``, once patience is over."""
        patience = f"{self.patience:g} s"
        if isinstance(problem, NoSpace):
            return StoreFull(
                f"{self} takes no more writes, for {patience} already ({problem}): make room with `etcdctl "
                f"compact REVISION` and `etcdctl defrag`, then `etcdctl alarm disarm`; or start it with a "
                f"larger --quota-backend-bytes and disarm"
            )
        if isinstance(problem, NotSent):
            return StoreUnavailable(f"{self} did not answer for {patience}: {problem}")
        return StoreUnavailable(
            f"{self} did not answer for {patience} ({problem}): check that this is etcd's port for clients, "
            f"and that it expects connections {self.settings.encryption}"
        )

    def close(self) -> None:
        self._closing.set()
        for endpoint in self._endpoints:
            endpoint.close()

    def _retried(self, attempt: Callable[[Endpoint, float], _T], again: tuple[type[Exception], ...]) -> _T:
        """``attempt`` at one endpoint after the other, while it raises ``again`` and patience lasts."""
        patience, begun = self.patience, self._clock.now()
        tries = 0
        while True:
            if self._closing.is_set():
                raise StoreError(f"the connection to {self} was closed: open another store")
            endpoint = self._endpoints[self._current]
            try:
                return attempt(endpoint, patience / (len(self._endpoints) + 1))
            except again as exc:
                problem = exc
            except NoAnswer:
                self._fail_over(endpoint)  # the way to this server may lose larger packets
                raise
            self._fail_over(endpoint)
            tries += 1
            # Wait only after a round over all endpoints.
            rounds, rest = divmod(tries, len(self._endpoints))
            delay = 0.0 if rest else min(_LONGEST_DELAY, _FIRST_DELAY * 2 ** (rounds - 1))
            if self._clock.now() + delay >= begun + self.patience:  # it shrinks once the process must leave
                raise self.unavailable(problem) from problem
            self._closing.wait(delay)

    def turn_away(self) -> None:
        """Continue with the next server, if there are several."""
        self._fail_over(self._endpoints[self._current])

    def _fail_over(self, failed: Endpoint) -> None:
        # Another thread may have switched to the next endpoint already.
        if self._endpoints[self._current] is failed:
            self._current = (self._current + 1) % len(self._endpoints)

    def _send(self, endpoint: Endpoint, path: str, body: Json, seconds: float) -> dict[str, Any]:
        answer = self._logged_in(
            endpoint, seconds, lambda seconds, token: endpoint.call(path, body, seconds, token)
        )
        self.revision = revision_of(answer)
        return answer

    def _logged_in(self, endpoint: Endpoint, seconds: float, send: Callable[[float, str | None], _T]) -> _T:
        """``send``; with a new login and once more if etcd turns it away because the login is over."""
        token = self._login(endpoint, seconds)
        try:
            return send(seconds, token)
        except Refused as refusal:
            if token is None or not refusal.login_is_over:
                raise
        if self._token == token:
            self._token = None
        return send(seconds, self._login(endpoint, seconds))

    def _login(self, endpoint: Endpoint, seconds: float) -> str | None:
        """The token of the present login; ``None`` for etcd without login."""
        if self.settings.user is None:
            return None
        with self._login_lock:
            if self._token is None:
                self._token = self._new_token(endpoint, seconds)
            return self._token

    def _new_token(self, endpoint: Endpoint, seconds: float) -> str:
        body = {"name": self.settings.user, "password": self.settings.password}
        try:
            return str(endpoint.call("auth/authenticate", body, seconds, None)["token"])
        except NoAnswer as exc:
            # The login, not the request behind it, was left without an answer.
            raise NotSent(f"no answer to the login: {exc}") from exc
