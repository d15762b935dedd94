"""The solver of a policy that has one (``core.ports.Planner``), on a virtual clock."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

from cerebro_elastic.core.decisions.assignment import remaining_work_now
from cerebro_elastic.core.model.events import Ordered
from cerebro_elastic.core.model.interfaces import Planner, RemainingWork
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Order
from cerebro_elastic.errors import RunError

if TYPE_CHECKING:
    from cerebro_elastic.simulation.engine import Course

SOLVING = 10.0
"""Seconds after which the solver answers."""


class Planning:
    """Asks at the moments at which a controller asks (``controller/solving.py``), and has the answer told
    later."""

    def __init__(self, course: Course, policy: Planner) -> None:
        self._course, self._policy = course, policy
        self._busy = False
        self._before: RemainingWork | None = None

    def look(self, state: State) -> None:
        """Ask, if that is due and nothing is being solved."""
        left = None if self._busy else remaining_work_now(state)
        if left is None or not self._policy.due(self._before, left):
            return
        self._before = left
        question = self._policy.question(left, self._course.plan.seed)
        if question is None:
            return
        command = [sys.executable, "-m", self._policy.solver]
        done = subprocess.run(
            command, input=json.dumps(question), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RunError(f"{self._policy.solver} ended with {done.returncode}: {done.stderr[-500:]}")
        order = self._policy.order(left, question, json.loads(done.stdout))
        self._busy = True
        self._course.at(self._course.now + SOLVING, partial(self._answer, order))

    def _answer(self, order: Order) -> None:
        self._busy = False
        if self._course.led and order:
            self._course.tell(Ordered(self._course.revision, order))
