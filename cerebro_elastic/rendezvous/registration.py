"""A node's registration, kept for as long as its agent lives."""

from __future__ import annotations

import threading
from contextlib import ExitStack, suppress

from cerebro_elastic.clock import Clock, SystemClock
from cerebro_elastic.core.values import Failure, FailureKind, Node
from cerebro_elastic.errors import LeaseLost, StoreError, StoreUnavailable
from cerebro_elastic.logs import EventLog
from cerebro_elastic.store.lease import LeaseKeeper
from cerebro_elastic.store.ledger import Ledger


class Registration:
    """Registers ``node`` under a lease of ``ttl`` seconds, and anew when that lease is lost: an agent
    that was cut off comes back as a new registration, and what its rank did meanwhile is
    judged at its commit."""

    def __init__(
        self, ledger: Ledger, node: Node, ttl: float, log: EventLog, clock: Clock | None = None
    ) -> None:
        self._ledger = ledger
        self._clock = clock or SystemClock()
        self._ttl = ttl
        self._log = log
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self.node = node
        self._keeper = self._register()
        self._thread = threading.Thread(target=self._stay, name="registration", daemon=True)
        self._thread.start()

    def renew(self, patience: float) -> None:
        """The ranks died and will be started again: give their attempt up, register anew. Tries for
        ``patience`` seconds while the store is out of reach, and then raises what it says."""
        deadline = self._clock.now() + patience
        while True:
            try:
                with self._lock:
                    self._renew()
                return
            except (StoreUnavailable, LeaseLost) as error:
                if self._clock.now() > deadline:
                    raise
                self._log.warning("cannot register", why=str(error))

    def close(self) -> None:
        """End the registration at once, instead of by its lease's end."""
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
            with suppress(StoreError):  # then it ends by its own time
                self._keeper.revoke()
        self._thread.join()

    def _renew(self) -> None:
        # A rank that ended when the store was away did not die of its unit.
        attempt = None if self._keeper.lost.is_set() else self._ledger.assignment(self.node.name)
        if attempt is not None and attempt.registration == self.node.registration:
            config = self._ledger.config(attempt.unit.config)
            story = "the rank died (killed, out of memory, or crashed in native code); see the node's log"
            if config is not None:
                failure = Failure(attempt.unit, attempt.node, attempt.token, FailureKind.CRASH, story)
                self._ledger.fail(attempt, config, failure)
        self._keeper.revoke()
        self._keeper = self._register()

    def _register(self) -> LeaseKeeper:
        with ExitStack() as stack:
            keeper = stack.enter_context(LeaseKeeper(self._ledger.store, self._ttl))
            self.node = self._ledger.register(self.node, keeper.lease)
            stack.pop_all()
        self._log.info("registered", registration=self.node.registration)
        return keeper

    def _stay(self) -> None:
        """The store may be out of reach for long; the node stays willing."""
        while not self._closed.wait(0.2):
            with self._lock:
                if self._closed.is_set() or not self._keeper.lost.is_set():
                    continue
                self._log.warning("registration lost", registration=self.node.registration)
                try:
                    self._keeper = self._register()
                except StoreError as error:
                    self._log.warning("cannot register", why=str(error))
