"""Will a run's budget of time or cost hold, and what would change that? An answer at a glance, from the
forecast of ``gap``; ``cerebro what-if`` simulates it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cerebro_elastic.core.decisions.moment import used_nodes
from cerebro_elastic.core.decisions.observing import observe
from cerebro_elastic.core.history.costs import cost, cost_per_second, stays_of
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.recipes.search import Budget
from cerebro_elastic.reporting.progress import seconds_left
from cerebro_elastic.reporting.tables import clock_text, money_text
from cerebro_elastic.search.budgets import USED_UP, budget_ends
from cerebro_elastic.system.words import counted

EXTENDED = sorted(Budget.model_fields.keys() - {"target", "price_per_node_hour"})
"""The bounds of which a run can get more."""


def budget_of(recipe: Mapping[str, Any]) -> Budget:
    """The budget of a resolved recipe."""
    return Budget.model_validate(recipe.get("search", {}).get("budget", {}))


def first_text(budget: Budget, plan: Plan) -> str | None:
    """What is known of a budget before the first unit; ``None`` without one of time or cost."""
    if budget.cost is not None and budget.price_per_node_hour is not None:
        hours = budget.cost / budget.price_per_node_hour
        nodes = plan.min_nodes
        bound = (
            f"a cost of {budget.cost:g} at {budget.price_per_node_hour:g} for an hour of a node, that is "
            f"{hours:.3g} node hours, or {clock_text(3600 * hours / nodes)} of {counted(nodes, 'node')}"
        )
    elif budget.seconds is not None:
        bound = f"{clock_text(budget.seconds)} from the first unit's begin"
    elif budget.deadline is not None:
        bound = f"the time until {budget.deadline}"
    else:
        return None
    return (
        f"budget: {bound}; whether it holds is said once units have been measured, and `cerebro plan` "
        "forecasts it before a run"
    )


@dataclass(frozen=True, slots=True)
class BudgetOutlook:
    """What becomes of a run's budget."""

    holds: bool | None
    """Whether all that the run is to do fits in; ``None``: it is not known yet."""
    text: str
    """A sentence about it, with what to change if it will not hold."""


def budget_outlook(state: State, budget: Budget) -> BudgetOutlook | None:
    """Whether the run's budget of time and cost will hold, or has ended configs early, as any budget may;
    ``None`` without such a budget, and before the first visit."""
    plan = state.plan
    if plan is None:
        return None
    early = ended_early(state, budget, plan.run) if state.outcome is not None else None
    if early is not None:
        return BudgetOutlook(False, f"budget: {_paid(state, budget)}{early}")
    if state.usage.began is None:
        return None
    context = observe(state, plan)
    bound, ends = min(budget_ends(budget, context).items(), key=lambda item: item[1])
    if budget.cost is None and ends == math.inf:
        return None
    paid = _paid(state, budget)
    if state.outcome is not None:
        return BudgetOutlook(True, f"budget: {paid}it has held")
    left, rest = seconds_left(state), max(0.0, ends - context.now)
    if left is None:
        return BudgetOutlook(None, f"budget: {paid}it is not known yet whether it will hold")
    if left <= rest:
        spare = "" if rest == math.inf else f", with {clock_text(rest - left)} to spare"
        return BudgetOutlook(True, f"budget: {paid}it will hold{_at_end(state, budget, left)}{spare}")
    return BudgetOutlook(
        False,
        f"budget: {paid}it will not hold: what is left takes {clock_text(left)}, and {clock_text(rest)} are "
        f"left until {bound}; configs whose epoch cannot end in it are stopped. It would hold "
        f"{_remedy(state, plan, budget, bound, left, rest)} (`cerebro what-if` simulates it)",
    )


def ended_early(state: State, budget: Budget, run: str) -> str | None:
    """How many configs the budget of the ``run``, as a command names it, has stopped, and how they go on;
    ``None`` if none."""
    stopped = {c.seen_as for c in state.configs.values() if c.reason.startswith(USED_UP)}
    if not stopped:
        return None
    known = [key for key in budget.model_dump(exclude_none=True) if key in EXTENDED]
    extend = " ".join(["cerebro extend", run, *(f"--budget {key}=MORE" for key in known)])
    goes_on = "it goes on" if len(stopped) == 1 else "they go on"
    return f"it has ended {counted(len(stopped), 'config')} early; {goes_on} by `{extend}`"


def _paid(state: State, budget: Budget) -> str:
    if budget.cost is None or budget.price_per_node_hour is None:
        return ""
    paid = cost(stays_of(state), budget.price_per_node_hour, state.usage.until)
    return f"{money_text(paid)} of {budget.cost:g} paid, "


def _at_end(state: State, budget: Budget, left: float) -> str:
    if budget.price_per_node_hour is None:
        return ""
    at_end = cost(stays_of(state), budget.price_per_node_hour, state.usage.until + left)
    return f", {money_text(at_end)} at the end"


def _remedy(state: State, plan: Plan, budget: Budget, bound: str, left: float, rest: float) -> str:
    """What would let the budget hold, roughly."""
    present = len(used_nodes(state, plan))
    live = {config.seen_as for config in state.configs.values() if config.status is Status.LIVE}
    fewer = math.ceil(len(live) * (1 - rest / left))
    ways = [f"with {counted(fewer, 'fewer config')}"] if fewer < len(live) else []
    if bound in ("the end", "the deadline"):
        more = math.ceil(present * left / rest) - present if rest else math.inf
        if more <= min(plan.max_nodes, plan.partitions * plan.replicas) - present:
            ways.insert(0, f"with about {counted(int(more), 'node')} more")
        ways.append(f"with {clock_text(left - rest)} more")
    elif budget.cost is not None and budget.price_per_node_hour is not None:
        more_cost = (left - rest) * cost_per_second(stays_of(state), budget.price_per_node_hour)
        ways.append(f"with a cost of {money_text(budget.cost + more_cost)}")
    return " or ".join(ways)
