"""The controller: leads, reads the history, decides, acts.

It decides only in a state that includes the effects of all that it did before, as the watch has
shown them. So it needs no memory of its own, and one that takes over decides as the last would have.
"""

from __future__ import annotations

from typing import Self

from cerebro_elastic.controller.follower import Follower, Observer, nobody
from cerebro_elastic.core.actions import (
    Action,
    Assign,
    CreateConfig,
    EndConfig,
    EndRun,
    Place,
    ResumeConfig,
    SetAside,
    Withdraw,
)
from cerebro_elastic.core.decide import decide
from cerebro_elastic.core.events import LeaderChanged
from cerebro_elastic.core.ports import Policy, Search
from cerebro_elastic.core.state import State
from cerebro_elastic.errors import RunError, TxnUnknown
from cerebro_elastic.store.ledger import Ledger


class Deposed(RunError):
    """Another controller leads, or this one's lease has ended."""


class Controller:
    """The leader of a run, from the moment it is made until it is closed or deposed.

    ``leader`` is the revision at which it was elected: the fence of all its verbs. ``observe`` is
    told the events of each revision from ``since`` on (by default: since the election), none left out, and
    the state after them.
    """

    def __init__(
        self,
        ledger: Ledger,
        policy: Policy,
        search: Search,
        *,
        name: str,
        leader: int,
        since: int | None = None,
        observe: Observer = nobody,
    ) -> None:
        self._ledger = ledger
        self._policy = policy
        self._search = search
        self._name = name
        self._leader = leader
        self._follower = Follower(ledger, leader + 1 if since is None else since, observe)
        self._awaited = 0

    def __enter__(self) -> Self:
        self._follower.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._follower.__exit__()

    @property
    def state(self) -> State:
        return self._follower.state

    def step(self, timeout: float | None) -> bool:
        """Take in the next revision, if there is one within ``timeout`` seconds, and act on it; whether
        there was one. Raises ``Deposed`` when another leads, or nobody."""
        events = self._follower.step(timeout)
        for event in events:
            if not isinstance(event, LeaderChanged) or event.revision <= self._leader:
                continue
            if event.leader != self._name:
                raise Deposed(f"controller {self._name} no longer leads the run (leader: {event.leader})")
        if self.state.revision >= self._awaited:
            self._act()
        return bool(events)

    def _act(self) -> None:
        try:
            for action in decide(self.state, self._policy, self._search):
                self._awaited = max(self._awaited, self._perform(action) or 0)
        except TxnUnknown:
            # If it happened, the watch will show it; if it happens yet, its guard knows.
            self._awaited = self._ledger.revision()

    def _perform(self, action: Action) -> int | None:
        ledger, leader = self._ledger, self._leader
        match action:
            case CreateConfig(config, parent):
                return ledger.create_config(config, leader, parent)
            case EndConfig(config, status, reason):
                return ledger.end_config(config, status, reason, leader)
            case ResumeConfig(config, reason):
                return ledger.resume_config(config, reason, leader)
            case Place(homes):
                return ledger.place(homes, leader)
            case Assign(attempt):
                return ledger.assign(attempt, leader)
            case Withdraw(attempt):
                return ledger.withdraw(attempt, leader)
            case SetAside(node, why, failure, seconds):
                return ledger.set_aside(node, why, failure, seconds, leader)
            case EndRun(outcome, asked):
                return ledger.end_run(outcome, leader, asked)
