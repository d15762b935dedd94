"""A node's registration, kept for as long as its agent lives."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from cerebro_elastic.clock import Clock, SystemClock
from cerebro_elastic.core.model.attempts import Attempt, Failure, Member
from cerebro_elastic.core.model.nodes import Node, Stall
from cerebro_elastic.errors import LeaseLost, NameTaken, StoreError, StoreUnavailable
from cerebro_elastic.logs import EventLog
from cerebro_elastic.rendezvous.dumps import Death
from cerebro_elastic.rendezvous.pulses import Ranks
from cerebro_elastic.store.ledger.nodes import NodeLedger
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.store.ledger.worker import WorkerLedger

_MARGIN = 3.0
"""Seconds that etcd may take to end a lease whose time is over."""
_POLL = 0.2


class Registration:
    """Registers ``node`` under a lease of ``ttl`` seconds, and anew when that lease has ended: an agent
    that was cut off comes back as a new registration, and what its rank did meanwhile is judged at
    its commit. A store that is away is no lost lease: only the store says that one has ended.

    The lease says that the node works: each time before it is renewed the ``ranks`` are looked at. While one
    shows no sign of life the run is told so; if that cannot be ended either, the node leaves the run.

    Raises ``NameTaken`` if another node of its name stays alive. ``unable`` is called, in a thread of its
    own, if that comes out later.
    """

    def __init__(
        self,
        record: Record,
        node: Node,
        ttl: float,
        log: EventLog,
        *,
        ranks: Ranks | None = None,
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
        self._take_name()
        self._thread = threading.Thread(target=self._stay, name="registration", daemon=True)
        self._thread.start()

    def renew(self, death: Death, patience: float) -> None:
        """The ranks died and will be started again: give their attempt up with this failure, register anew.
        If besides they saved what was trained before, that is lost with the registration and nobody's fault:
        who was in training is to blame, unless it is known to be the other. Tries for ``patience`` seconds
        while the store is out of reach, and then raises what it says."""
        deadline = self._clock.now() + patience
        while True:
            try:
                with self._lock:
                    self._renew(death)
                return
            except (StoreUnavailable, LeaseLost) as error:
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
        self._thread.join(timeout=1.0)  # a request to a store that is away may take longer

    def _take_name(self) -> None:
        """Register; first wait for the lease of a dead node of this name to end: this one's, if it was
        killed and comes back."""
        began = self._clock.now()
        told = False
        while True:
            try:
                return self._register(starting=True)
            except NameTaken as error:
                if self._clock.now() - began > self._ttl + _MARGIN:
                    raise
                if not told:
                    self._log.info("waiting for the name", why=str(error))
                told = True
            self._clock.sleep(_POLL)

    def _renew(self, death: Death) -> None:
        present = self._record.node(self.node.name)
        if present is not None and present.registration == self.node.registration:
            self.node = replace(self.node, drain=present.drain)
        self._end(death)
        self._register(starting=True)
        self._left = False

    def _end(self, death: Death) -> None:
        """The registration ends, and with it the attempt that is to blame for this failure."""
        attempt = self._to_blame(death)
        if attempt is not None and Member(self.node.name, self.node.registration) in attempt.members:
            config = self._record.config(attempt.unit.config)
            if config is not None:
                failure = Failure(
                    attempt.unit,
                    self.node.name,
                    attempt.token,
                    death.kind,
                    death.story,
                    strategy=attempt.strategy,
                    hardware=attempt.hardware,
                )
                WorkerLedger(self._record).fail(attempt, config, failure)
        self._record.store.revoke(self._lease)

    def _to_blame(self, death: Death) -> Attempt | None:
        training, saving = (
            self._record.assignment(self.node.name),
            self._record.saving(self.node.name),
        )
        if training is None or (saving is not None and saving.token == death.attempt):
            return saving
        return training

    def _register(self, *, starting: bool) -> None:
        lease = self._record.store.grant(self._ttl)
        try:
            self.node = NodeLedger(self._record).register(replace(self.node, starting=starting), lease)
        except BaseException:
            with suppress(StoreError):
                self._record.store.revoke(lease)
            raise
        self._lease, self._stall = lease, None
        self._log.info("registered", registration=self.node.registration)

    def _stay(self) -> None:
        """Keep the lease, for ever: the store may be out of reach for long."""
        wait = self._ttl / 3
        while not self._closed.wait(wait):
            try:
                wait = self._look_and_keep()
            except NameTaken as error:
                self._unable(error)
                return
            except StoreError as error:
                wait = self._ttl / 10
                if not self._away:
                    self._log.warning("store out of reach, the node stays", why=str(error))
                self._away = True

    def _look_and_keep(self) -> float:
        """When to do so again, in seconds."""
        stall = self._ranks.look() if self._ranks is not None else None
        if self._ranks is not None and self._ranks.dead is not None and not self._left:
            self._leave(self._ranks.dead)
        if self._left:
            return self._ttl / 3
        wait = self._keep(self._lease)
        if (stall is None) != (self._stall is None):
            NodeLedger(self._record).report_stall(self.node.name, self.node.boot, stall)
            self._log.warning("stalled" if stall else "goes on", **({"why": stall.why} if stall else {}))
            self._stall = stall
        return wait

    def _leave(self, death: Death) -> None:
        """A rank does not die, or is not started anew: this is no node any more, until it is."""
        with self._lock:
            if not self._closed.is_set():
                self._log.error("the node leaves the run: its rank cannot be ended", error=death.story)
                self._end(death)
                self._left = True

    def _keep(self, lease: int) -> float:
        """Renew the lease or, if it has ended, the registration; when to do so again, in seconds."""
        try:
            # Not under the lock: a store that is away must keep nobody from closing.
            self._record.store.keep(lease)
            if not self._record.holds(self.node.name, lease):
                raise LeaseLost(f"the key of the node {self.node.name} is gone, or another's")
        except LeaseLost:
            with self._lock:
                if not self._closed.is_set() and self._lease == lease:
                    self._log.warning("registration lost", registration=self.node.registration)
                    with suppress(StoreError):
                        self._record.store.revoke(lease)
                    self._register(starting=False)  # its ranks go on
        if self._away:
            self._log.info("store in reach again")
        self._away = False
        return self._ttl / 3
