"""The solver of a policy that has one (``Planner``), on a virtual clock."""

from __future__ import annotations

from cerebro_elastic.core.decisions.assignment import remaining_work_now
from cerebro_elastic.core.model.interfaces import Planner, RemainingWork
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Order
from cerebro_elastic.system.subprocess_call import NO_FORK, call

SOLVING_SECONDS = 10.0
"""How long the solver takes, on the virtual clock."""


class SimulatedSolver:
    """Asks at the moments at which a controller asks (``controller/solving.py``)."""

    def __init__(self, policy: Planner, seed: int) -> None:
        self._policy, self._seed = policy, seed
        self._before: RemainingWork | None = None

    def order(self, state: State) -> Order | None:
        """The order that the solver finds at this moment; ``None`` if there is nothing to ask."""
        left = remaining_work_now(state)
        if left is None or not self._policy.due(self._before, left):
            return None
        self._before = left
        question = self._policy.question(left, self._seed)
        if question is None:
            return None
        solver = self._policy.solver
        answer = call(solver, f"the solver {solver}", question, NO_FORK)
        return self._policy.order(left, question, answer["answer"])
