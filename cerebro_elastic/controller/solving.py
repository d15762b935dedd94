"""How does a leader use its policy's solver (``Planner``)? As a process beside it, which answers while units
run.

The leader never waits for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from cerebro_elastic.core.decisions.assignment import remaining_work_now
from cerebro_elastic.core.model.interfaces import Planner, RemainingWork
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Order
from cerebro_elastic.errors import CerebroError
from cerebro_elastic.system.subprocess_call import NO_FORK, SubprocessCall

NICENESS = 10
"""By how much the solver's priority is lowered."""


class Solving:
    """What a leader asks of its policy's solver, one question at a time.

    If a solver fails, cannot be started (a full disk, no memory) or answers nonsense, ``say`` is called
    with the reason, and the solver is not asked again: the run goes on without it.
    """

    def __init__(self, policy: Planner, seed: int, say: Callable[[str], None]) -> None:
        self._policy, self._seed, self._say = policy, seed, say
        self._before: RemainingWork | None = None
        self._question: Mapping[str, Any] = {}
        self._process: SubprocessCall | None = None
        self._failed = False

    def step(self, state: State) -> Order | None:
        """The answer, if it has come by now; else ask, if that is due."""
        if self._process is not None:
            come = self._process.has_answer(wait=False) or self._process.ended
            return self._order(self._process) if come else None
        left = None if self._failed else remaining_work_now(state)
        if left is not None and self._policy.due(self._before, left):
            self._before = left
            question = self._policy.question(left, self._seed)
            if question is not None:
                self._ask(question)
        return None

    def close(self) -> None:
        """End the solver: its answer is of no use any more."""
        if self._process is not None:
            self._process.end()
            self._process = None

    def _ask(self, question: Mapping[str, Any]) -> None:
        self._question, name = question, f"the solver {self._policy.solver}"
        try:
            self._process = SubprocessCall(self._policy.solver, name, question, NO_FORK)
        except OSError as error:
            self._give_up(f"{name} cannot be asked ({error})")
            return
        with suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, self._process.process.pid, NICENESS)

    def _order(self, process: SubprocessCall) -> Order | None:
        assert self._before is not None
        try:
            answer = process.answer()["answer"]
        except CerebroError as error:
            self._give_up(str(error))
            return None
        finally:
            self.close()
        return self._policy.order(self._before, self._question, answer)

    def _give_up(self, reason: str) -> None:
        self._failed = True
        self._say(f"{reason}: going on without it")
