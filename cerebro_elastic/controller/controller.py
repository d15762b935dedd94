"""What does the leader of a run do? It reads the history, decides, and acts.

It decides only in a state with the effects of all its earlier actions, as seen by the watch. So it needs no
memory, and a controller that takes over decides as its predecessor would have.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from cerebro_elastic.controller.follower import Follower, Observer, nobody
from cerebro_elastic.core.decisions.decide import decide
from cerebro_elastic.core.decisions.moment import Questions
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.codec import excerpt
from cerebro_elastic.core.model.events import Event, LeaderChanged, Ordered, UnitAssigned
from cerebro_elastic.core.model.interfaces import Planner, Policy, Search
from cerebro_elastic.core.model.reuse import NOTHING
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Order, RecordHead
from cerebro_elastic.errors import CerebroError, RunError, TxnUnknown
from cerebro_elastic.store.ledger.leader import LeaderLedger
from cerebro_elastic.system.subprocess_call import NO_FORK, SubprocessCall

NICENESS = 10
"""The solver's niceness, which lowers its priority."""
_SUSPICIOUS = 10
"""This many decisions without effect in a row, about half a second each, are no accident."""


class Deposed(RunError):
    """Another controller leads, or this one's lease has ended."""


class Controller(Follower):
    """The leader of a run: it follows the run and acts, from its construction until it is closed or deposed.

    Args:
        ledger: The ledger of its leadership, which fences all its transactions.
        since: The first revision that ``observe`` gets; by default the one after the election.
        observe: Gets the events of each revision without a gap, and the state after them.
        head: Returns the end of the record of these events.
        reusable: The results of earlier runs that configs may take over (``Reusable.steps``).
    """

    def __init__(
        self,
        ledger: LeaderLedger,
        policy: Policy,
        search: Search,
        *,
        name: str,
        since: int | None = None,
        observe: Observer = nobody,
        head: Callable[[], RecordHead | None] = lambda: None,
        say: Callable[[str], None] = lambda _text: None,
        reusable: Mapping[str, Sequence[Visit]] = NOTHING.steps,
    ) -> None:
        self._reusable = reusable
        self._ledger = ledger
        self._policy = policy
        # Checked once: Python looks at each member of the protocol, 0.1 ms in every step.
        self._planner = policy if isinstance(policy, Planner) else None
        self._search = search
        self._name = name
        since = ledger.fence + 1 if since is None else since
        super().__init__(ledger.record, since, observe)
        self._hears = ledger.fence if since <= ledger.fence else 0
        self._refused = 0
        self._awaited = 0
        self._head = head
        self._solving: Solving | None = None
        self._say = say

    def __exit__(self, *_: object) -> None:
        if self._solving is not None:
            self._solving.close()
        super().__exit__()

    def step(self, timeout: float | None) -> list[Event]:
        """Take in the next revision, if one comes within ``timeout`` seconds, and act on it; its events.

        Raises:
            Deposed: This controller no longer leads.
        """
        events = super().step(timeout)
        for event in events:
            if not isinstance(event, LeaderChanged) or event.revision <= self._ledger.fence:
                continue
            if event.leader != self._name:
                raise Deposed(f"controller {self._name} no longer leads the run (leader: {event.leader})")
        # Changes that others wrote before the election are seen before the first decision.
        if self.heard >= self._hears and self.revision >= self._awaited:
            self._act()
            self._plan_ahead()
        return events

    def _plan_ahead(self) -> None:
        """Give the policy's solver, if it has one, its question, and record its order."""
        plan = self.state.plan
        if self._planner is None or plan is None:
            return
        self._solving = self._solving or Solving(self._planner, plan.seed, self._say)
        order = self._solving.step(self.state)
        if order:
            with suppress(TxnUnknown):  # the next answer is just as good
                self._ledger.write(self.state, Ordered(0, order))

    def _act(self) -> None:
        if self.revision < self._awaited:
            return
        try:
            events = decide(self.state, self._policy, self._search, self._reusable)
            done = [self._write(event) for event in events]
            self._awaited = max([self._awaited, *(revision or 0 for revision in done)])
            self._refused = self._refused + 1 if done and not any(done) else 0
            if self._refused == _SUSPICIOUS:
                self._say(f"the store lets none of this through, again and again: {excerpt(str(events))}")
        except TxnUnknown:
            # If it happened, the watch will show it; if it happens later, its guard decides.
            self._awaited = self._ledger.record.revision()

    def _write(self, event: Event) -> int | None:
        if isinstance(event, UnitAssigned):
            event = replace(event, attempt=replace(event.attempt, record=self._head()))
        return self._ledger.write(self.state, event)


class Solving:
    """A leader's use of its policy's solver (``Planner``): a separate process, which answers one question at
    a time while units run. The leader never waits for it.

    If a solver fails, cannot be started (a full disk, no memory) or answers nonsense, ``say`` is called
    with the reason, and the solver is not asked again: the run continues without it.
    """

    def __init__(self, policy: Planner, seed: int, say: Callable[[str], None]) -> None:
        self._solver, self._questions, self._say = policy.solver, Questions(policy, seed), say
        self._process: SubprocessCall | None = None
        self._failed = False

    def step(self, state: State) -> Order | None:
        """The answer, if it has arrived; else ask, if that is due."""
        if self._process is not None:
            come = self._process.has_answer(wait=False) or self._process.ended
            return self._order(self._process) if come else None
        question = None if self._failed else self._questions.due(state)
        if question is not None:
            self._ask(question)
        return None

    def close(self) -> None:
        """End the solver: its answer is no longer useful."""
        if self._process is not None:
            self._process.end()
            self._process = None

    def _ask(self, question: Mapping[str, Any]) -> None:
        name = f"the solver {self._solver}"
        try:
            self._process = SubprocessCall(self._solver, name, question, NO_FORK)
        except OSError as error:
            self._give_up(f"{name} cannot be asked ({error})")
            return
        with suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, self._process.process.pid, NICENESS)

    def _order(self, process: SubprocessCall) -> Order | None:
        try:
            answer = process.answer()["answer"]
        except CerebroError as error:
            self._give_up(str(error))
            return None
        finally:
            self.close()
        return self._questions.order(answer)

    def _give_up(self, reason: str) -> None:
        self._failed = True
        self._say(f"{reason}: continuing without it")
