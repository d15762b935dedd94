"""A node's registration, kept for as long as its agent lives."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from cerebro_elastic.core.model.attempts import Attempt, Failure, Member
from cerebro_elastic.core.model.nodes import Node, Stall
from cerebro_elastic.errors import LeaseLost, NameTaken, StoreError, StoreUnavailable, TxnUnknown
from cerebro_elastic.store.client.lease import PacketCheck
from cerebro_elastic.store.ledger.nodes import NodeLedger
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.store.ledger.worker import WorkerLedger
from cerebro_elastic.system.clock import Clock, SystemClock
from cerebro_elastic.system.departure import within
from cerebro_elastic.system.logs import EventLog
from cerebro_elastic.worker.rendezvous.heartbeats import RankFailure, RankMonitor

_MARGIN = 3.0
"""Seconds that etcd may take to end an expired lease."""
_POLL = 0.2
_PASSING = (StoreUnavailable, LeaseLost, TxnUnknown)
"""The errors of a registration while the store is out of reach."""


class Registration:
    """Registers a node under a lease, and keeps the lease.

    When the lease has ended the node is registered again: an agent that was cut off comes back as a new
    registration, and the commits of its rank are refused. A store out of reach does not end the lease. A
    network that loses the larger packets counts as a cut.

    Before each renewal the heartbeats of the ranks are checked. While one has none the stall is reported to
    the run. If its process cannot be killed, the node leaves the run.

    Args:
        ttl: Seconds that the lease lasts without renewal.
        patience: Seconds to wait for a store out of reach before the first registration.
        clock: Real time by default.
        unable: Takes the error if another node of the same name appears later; called in a separate thread.

    Raises:
        NameTaken: Another node of the same name stays alive.
        StoreError: The store is out of reach for longer.
    """

    def __init__(
        self,
        record: Record,
        node: Node,
        ttl: float,
        log: EventLog,
        *,
        patience: float = 0.0,
        ranks: RankMonitor | None = None,
        clock: Clock | None = None,
        unable: Callable[[NameTaken], None] = lambda _error: None,
    ) -> None:
        self._record = record
        self._clock = clock or SystemClock()
        self._ttl = ttl
        self._log = log
        self._ranks = ranks
        self._stall: Stall | None = None
        self._left = False
        self._unable = unable
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._away = False
        self._lease = 0
        self.node = node
        self._take_name(patience)
        self._packets = PacketCheck(record.exchange_packets, ttl)
        self._thread = threading.Thread(target=self._keep_registered, name="registration", daemon=True)
        self._thread.start()

    def renew(self, failure: RankFailure, patience: float) -> None:
        """The ranks died and will be restarted: fail their attempt, and register again.

        A unit that was saved in the background is lost with the registration, but does not fail: the unit in
        training gets the failure, unless the failure names the other one.

        Args:
            patience: Seconds to try while the store is out of reach; then its error is raised.
        """
        deadline = self._clock.now() + patience
        while True:
            try:
                with self._lock:
                    self._renew(failure)
                return
            except _PASSING as error:
                if self._clock.now() > deadline:
                    raise
                self._log.warning("cannot register", why=str(error))
            self._closed.wait(_POLL)

    def close(self) -> None:
        """End the registration at once, instead of by its lease's end."""
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
            with suppress(StoreError):  # then it ends by its own time
                self._record.store.revoke(self._lease)
        self._packets.close()
        self._thread.join(timeout=within(1.0))  # a request to a store that is away may take longer

    def _take_name(self, patience: float) -> None:
        """Register. Wait first for the lease of a dead node of this name to end: this node's own, if it was
        killed and comes back. And for a store out of reach: a cut may last longer than the new lease."""
        began = self._clock.now()
        reported = False
        while True:
            try:
                self._record.exchange_packets()
                return self._register(starting=True)
            except NameTaken as error:
                if self._clock.now() - began > self._ttl + _MARGIN:
                    raise
                if not reported:
                    self._log.info("waiting for the name", why=str(error))
                reported = True
            except _PASSING as error:
                if self._clock.now() - began > patience:
                    raise
                self._log.warning("cannot register yet", why=str(error))
            self._clock.sleep(_POLL)

    def _renew(self, failure: RankFailure) -> None:
        present = self._record.node(self.node.name)
        if present is not None and present.registration == self.node.registration:
            self.node = replace(self.node, drain=present.drain)
        self._end(failure)
        self._register(starting=True)
        self._left = False

    def _end(self, failure: RankFailure) -> None:
        """End the registration, and fail the attempt in which the ranks died."""
        attempt = self._failed_attempt(failure)
        if attempt is not None and Member(self.node.name, self.node.registration) in attempt.members:
            config = self._record.config(attempt.unit.config)
            if config is not None:
                failed = Failure.of(attempt, self.node.name, failure.kind, failure.story)
                WorkerLedger(self._record).fail(attempt, config, failed)
        self._record.store.revoke(self._lease)

    def _failed_attempt(self, failure: RankFailure) -> Attempt | None:
        assigned, saving = self._record.assignments(self.node.name), self._record.saving(self.node.name)
        attempts = [*assigned, saving] if saving is not None else assigned
        known = (attempt for attempt in attempts if attempt.token == failure.attempt)
        return next(known, attempts[0] if attempts else None)

    def _register(self, *, starting: bool) -> None:
        lease = self._record.store.grant(self._ttl)
        try:
            joined = round(self._clock.wall(), 3)
            node = replace(self.node, starting=starting, joined=joined)
            self.node = NodeLedger(self._record).register(node, lease)
        except BaseException:
            with suppress(StoreError):
                self._record.store.revoke(lease)
            raise
        self._lease, self._stall = lease, None
        self._log.info("registered", registration=self.node.registration)

    def _keep_registered(self) -> None:
        """Keep the lease until closed: the store may be out of reach for long."""
        wait = self._ttl / 3
        while not self._closed.wait(wait):
            try:
                wait = self._check_and_keep()
            except NameTaken as error:
                self._unable(error)
                return
            except StoreError as error:
                wait = self._ttl / 10
                if not self._away:
                    self._log.warning("store out of reach, the node stays", why=str(error))
                self._away = True

    def _check_and_keep(self) -> float:
        """Check the ranks, then renew the lease; returns the seconds until the next time."""
        stall = self._ranks.look() if self._ranks is not None else None
        if self._ranks is not None and self._ranks.dead is not None and not self._left:
            self._leave(self._ranks.dead)
        if self._left:
            return self._ttl / 3
        wait = self._keep(self._lease)
        if (stall is None) != (self._stall is None):
            NodeLedger(self._record).report_stall(self.node.name, self.node.boot, stall)
            self._log.warning("stalled" if stall else "continues", **({"why": stall.why} if stall else {}))
            self._stall = stall
        return wait

    def _leave(self, failure: RankFailure) -> None:
        """Leave the run until the ranks are restarted: one of them does not die, or is not restarted."""
        with self._lock:
            if not self._closed.is_set():
                self._log.error("the node leaves the run: its rank cannot be ended", error=failure.story)
                self._end(failure)
                self._left = True

    def _keep(self, lease: int) -> float:
        """Renew the lease or, if it has ended, the registration; returns the seconds until the next time."""
        try:
            # Not under the lock: while the store is away it must still be possible to close.
            self._packets()
            self._record.store.keep(lease)
            if not self._record.holds(self.node.name, lease):
                raise LeaseLost(f"the key of the node {self.node.name} is gone, or another's")
        except LeaseLost:
            with self._lock:
                if not self._closed.is_set() and self._lease == lease:
                    self._log.warning("registration lost", registration=self.node.registration)
                    with suppress(StoreError):
                        self._record.store.revoke(lease)
                    self._register(starting=False)  # its ranks continue
        if self._away:
            self._log.info("store in reach again")
        self._away = False
        return self._ttl / 3
