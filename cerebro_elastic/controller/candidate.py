"""How does a process stand for a run's lead? A candidate follows while another leads, and leads once elected.

Any process may be a candidate; one of them leads, and stands again when it is deposed. A candidate survives
every fault of its store. It waits for a store that is away. It reads the state afresh from a store that has
dropped the history (compaction) or has another one (restored from a snapshot). It ends if other programs have
written to the run's record.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from cerebro_elastic.controller.controller import Controller, Deposed
from cerebro_elastic.controller.follower import Follower, Observer, nobody
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.events import Event, LeaderChanged
from cerebro_elastic.core.model.interfaces import Policy, Search
from cerebro_elastic.core.model.reuse import NOTHING
from cerebro_elastic.core.model.state import State
from cerebro_elastic.errors import Compacted, IllegalEvent, LeaseLost, RunError, StoreUnavailable, TxnUnknown
from cerebro_elastic.store.client.lease import LeaseKeeper, PacketCheck
from cerebro_elastic.store.ledger.journal import Journal
from cerebro_elastic.store.ledger.leader import become_leader
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.system.clock import Clock, SystemClock

LEASE_SECONDS = 5.0
PATIENCE = 600.0
"""Seconds for which a candidate waits for a store that is out of reach."""
STEADY_SECONDS = 30.0
"""A fault counts as over after this time without another. On a bad network faults come and go: each is
reported once."""
_STEP, _WAIT = 0.5, 1.0


@dataclass(frozen=True, slots=True)
class Host:
    """The process that a candidate is part of."""

    observe: Observer = nobody
    """Gets the events of each revision, and the state after them."""
    say: Callable[[str], None] = lambda _text: None
    """Shows a sentence to people."""
    pause: Callable[[State], None] = lambda _state: None
    """Called after each event, and at least about twice a second."""


class Candidate:
    """A process that may lead the run of ``record``, and keeps its ``journal``; the packages that decide are
    of these ``versions``."""

    def __init__(
        self,
        record: Record,
        policy: Policy,
        search: Search,
        journal: Journal,
        host: Host,
        *,
        name: str | None = None,
        versions: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        reusable: Mapping[str, Sequence[Visit]] = NOTHING.steps,
    ) -> None:
        self._reusable = reusable
        self._record = record
        self._policy = policy
        self._search = search
        self._journal = journal
        self._host = host
        self.name = name or f"{socket.gethostname()}-{uuid.uuid4().hex[:6]}"
        self._versions = versions or {}
        self._clock = clock or SystemClock()
        self._afresh = False
        self._away: float | None = None
        self._last_fault: float | None = None
        """The time of the last outage of the store or loss of the lead; ``None`` once that counts as over."""
        self._extended: int | None = None
        self.state = State()

    @property
    def leads(self) -> bool:
        """Whether, to its knowledge, it leads the run or has led it to its end."""
        return self.state.leader == self.name

    def run(self) -> None:
        """Follow or lead until the run has ended.

        Raises:
            StoreUnavailable: The store was out of reach for ``PATIENCE`` seconds.
            ForeignValue: Other programs have changed the run's keys.
            Exception: Any error of ``host``.
        """
        while self.state.outcome is None:
            try:
                self._follow_or_lead()
            except (Deposed, LeaseLost) as error:  # as after a suspension of this process
                self._say_once(f"{error}: standing for election again")
            except IllegalEvent as error:  # the store is right, and the record continues from it
                self._host.say(f"{error}; reading the state afresh")
            except Compacted as error:
                self._host.say(f"{error}: continuing from the present state")
                self._afresh = True
            except (StoreUnavailable, TxnUnknown) as error:
                self._wait(error)

    def catch_up(self) -> None:
        """Record the history up to now, after ``run`` was left before the run's end. This process does not
        wait for the history of a store that is away."""
        if self._away is not None:
            return
        since, until = self._resume(), self._record.revision()
        append: Observer = lambda events, _: self._journal.append(events)  # noqa: E731
        with Follower(self._record, since, append) as follower:
            # The end of a lease is no transaction, and may come after the last one.
            while follower.step(_STEP) or follower.revision < until:
                pass

    def _resume(self) -> int:
        """Read the state; returns the revision from which to follow the history."""
        before = self._journal.revision
        read = self._record.read()
        since = self._journal.resume(read, afresh=self._afresh)
        self._afresh = False
        self.state = read.state
        if self._extended not in (None, read.state.extended):
            raise RunError(
                f"run {self._record.keys.run!r} has ended and was extended, which this process did "
                "not see: it knows the recipe of before. Start it again with the same command"
            )
        self._extended = read.state.extended
        if before and read.revision < before:
            self._host.say(
                f"the store is at revision {read.revision}, it was at {before}: it was restored from a "
                "snapshot; continuing from its state"
            )
        return since

    def _follow_or_lead(self) -> None:
        since = self._resume()
        if self.state.outcome is not None:
            return
        if self._record.is_led():
            self._follow(since)
        else:
            self._stand(since)

    def _follow(self, since: int) -> None:
        """Follow as long as another controller leads."""
        with Follower(self._record, since, self._append) as follower:
            left = False
            while follower.state.outcome is None and not left:
                events = follower.step(_STEP)
                self._took(follower.state)
                left = LeaderChanged(follower.revision, None) in events

    def _stand(self, since: int) -> None:
        """Stand for election. If elected, lead to the run's end or until deposed."""
        exchange = self._record.exchange_packets
        exchange()
        with (
            closing(PacketCheck(exchange, LEASE_SECONDS)) as check,
            LeaseKeeper(self._record.store, LEASE_SECONDS, check=check) as keeper,
        ):
            ledger = become_leader(self._record, self.name, keeper.lease, self._versions, self._journal.head)
            if ledger is None:
                return
            with Controller(
                ledger,
                self._policy,
                self._search,
                name=self.name,
                since=since,
                observe=self._append,
                head=lambda: self._journal.head,
                say=self._host.say,
                reusable=self._reusable,
            ) as controller:
                while controller.state.outcome is None:
                    if keeper.lost.is_set():
                        raise Deposed(f"the lease of controller {self.name} has ended")
                    controller.step(_STEP)
                    self._took(controller.state)

    def _append(self, events: list[Event], state: State) -> None:
        self._journal.append(events)
        self._host.observe(events, state)

    def _took(self, state: State) -> None:
        """Called after each step that went well."""
        self.state = state
        self._away = None
        if self._last_fault is not None and self._clock.now() - self._last_fault > STEADY_SECONDS:
            self._host.say("all goes well again")
            self._last_fault = None
        self._host.pause(state)

    def _wait(self, error: Exception) -> None:
        now = self._clock.now()
        if self._away is None:
            self._away = now
        elif now - self._away > PATIENCE:
            raise error
        self._say_once(f"{error}. Waiting for it; units that have begun continue")
        self._host.pause(self.state)
        self._clock.sleep(_WAIT)

    def _say_once(self, message: str) -> None:
        if self._last_fault is None:
            self._host.say(message)
        self._last_fault = self._clock.now()
