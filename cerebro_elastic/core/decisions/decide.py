"""What to do next: a pure function of the state. An action's effect is seen as an event before
the next decision, so nothing here needs to remember what was asked for."""

from __future__ import annotations

from cerebro_elastic.core.decisions.assignment import assignments
from cerebro_elastic.core.decisions.membership import set_asides
from cerebro_elastic.core.decisions.repairs import failures, placements, withdrawals
from cerebro_elastic.core.decisions.searching import searches
from cerebro_elastic.core.model.actions import Action, EndRun
from cerebro_elastic.core.model.interfaces import Policy, Search
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.values import Status


def decide(state: State, policy: Policy, search: Search) -> list[Action]:
    """The actions to try now, in order; none if there is nothing to do but wait.

    What makes the state consistent comes first; units are assigned only in a state that needs none of that.
    """
    plan = state.plan
    if plan is None or state.outcome is not None:
        return []
    repairs: list[Action] = [
        *withdrawals(state),
        *failures(state, plan),
        *set_asides(state),
        *searches(state, plan, search),
        *placements(state, plan),
    ]
    if repairs:
        return repairs
    if not any(c.status is Status.LIVE for c in state.configs.values()):
        return [EndRun("finished", state.asked)]
    return list(assignments(state, plan, policy))
