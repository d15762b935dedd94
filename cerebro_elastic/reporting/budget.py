"""Will a run's budget of time or cost hold, and what would change that? An answer at a glance, from the
forecast of ``gap``; ``cerebro plan RUN`` simulates it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cerebro_elastic.core.decisions.moment import used_nodes
from cerebro_elastic.core.decisions.observing import observe
from cerebro_elastic.core.history.costs import cost, cost_per_second, stays_of
from cerebro_elastic.core.history.members import by_config
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.recipes.search import Budget
from cerebro_elastic.reporting.gap import SearchEnd, gap
from cerebro_elastic.reporting.progress import seconds_left
from cerebro_elastic.reporting.tables import clock_text, money_text
from cerebro_elastic.search.budgets import USED_UP, budget_ends, is_timed
from cerebro_elastic.system.words import counted

EXTENDED = sorted(Budget.model_fields.keys() - {"target", "price_per_node_hour"})
"""The bounds that an extension can raise."""


def first_text(budget: Budget, plan: Plan) -> str | None:
    """The knowledge of a budget before the first unit, as text; ``None`` without a budget of time or cost."""
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
    """The forecast of a run's budget."""

    holds: bool | None
    """Whether all of the run's work fits in; ``None``: not known yet, or too close to say."""
    text: str
    """A sentence about it, with what to change if it will not hold."""


def budget_outlook(state: State, end: SearchEnd) -> BudgetOutlook | None:
    """Whether the run's budget will hold, or has ended configs early; ``None`` without one, and before the
    first visit."""
    plan, budget = state.plan, end.budget
    bounded = state.usage.began is not None and budget.ends
    if plan is None or (state.outcome is None and not bounded):
        return None
    early = ended_early(state, budget, plan.run)
    if early is not None and state.outcome is not None:
        return BudgetOutlook(False, f"budget: {_paid(state, budget)}{early}")
    if not bounded:
        return None
    paid = _paid(state, budget)
    if state.outcome is not None:
        return BudgetOutlook(True, f"budget: {paid}it has held")
    forecast, left = gap(state, end), seconds_left(state, end)
    if left is None or forecast is None:
        return BudgetOutlook(None, f"budget: {paid}it is not known yet whether it will hold")
    if end.endless:
        return BudgetOutlook(True, f"budget: {paid}the search uses it up, in {clock_text(left)}")
    needed = forecast.needed - state.usage.elapsed
    if forecast.needed <= forecast.forecast and early is None:
        rest = _rest(state, plan, budget)
        if rest < needed * (1 + _UNSURE):
            text = f"what is left takes {clock_text(needed)}, and {clock_text(rest)} are left"
            return BudgetOutlook(None, f"budget: {paid}it may just hold: {text}")
        spare = "" if rest == math.inf else f", with {clock_text(rest - needed)} to spare"
        return BudgetOutlook(True, f"budget: {paid}it will hold{_at_end(state, budget, left)}{spare}")
    configs = len(by_config(state.configs.values())), end.num
    stopped = forecast.unfinished + len(_stopped(state))
    finish = f"about {max(configs) - stopped} of {counted(max(configs), 'config')} will finish"
    if forecast.needed <= forecast.forecast:
        return BudgetOutlook(False, f"budget: {paid}it has stopped the others: {finish}")
    return BudgetOutlook(
        False,
        f"budget: {paid}it will not hold: what is left takes {clock_text(needed)}, and {clock_text(left)} "
        f"are left; {finish}, the others are stopped. It would hold "
        f"{_remedy(state, plan, budget, left, needed)} (`cerebro plan {plan.run}` simulates it); "
        "`concurrency` trains fewer at a time, `method: asha` stops bad ones early",
    )


_UNSURE = 0.05
"""The share of the remaining time by which a forecast may well be wrong."""


def _rest(state: State, plan: Plan, budget: Budget) -> float:
    """The seconds until the budget of time or cost is used up."""
    context = observe(state, plan)
    return max(0.0, min(budget_ends(budget, context).values()) - context.now)


def ended_early(state: State, budget: Budget, run: str) -> str | None:
    """How many configs the budget of the ``run``, as a command names it, has stopped, and how to continue
    them; ``None`` if none."""
    stopped = _stopped(state)
    if not stopped:
        return None
    known = [key for key in budget.model_dump(exclude_none=True) if key in EXTENDED]
    extend = " ".join(["cerebro extend", run, *(f"--budget {key}=MORE" for key in known)])
    goes_on = "it goes on" if len(stopped) == 1 else "they go on"
    return f"it has ended {counted(len(stopped), 'config')} early; {goes_on} by `{extend}`"


def _stopped(state: State) -> set[str]:
    """The configs stopped by the budget."""
    return {c.seen_as for c in state.configs.values() if c.reason.startswith(USED_UP)}


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


def _remedy(state: State, plan: Plan, budget: Budget, rest: float, needed: float) -> str:
    """A rough remedy that lets the budget hold, if the remaining work needs more than the ``rest``."""
    present, over = len(used_nodes(state, plan)), needed - rest
    live = {config.seen_as for config in state.configs.values() if config.status is Status.LIVE}
    fewer = math.ceil(len(live) * over / needed)
    ways = [f"with {counted(fewer, 'fewer config')}"] if fewer < len(live) else []
    if budget.cost is not None and budget.price_per_node_hour is not None:
        more_cost = over * cost_per_second(stays_of(state), budget.price_per_node_hour)
        return " or ".join([*ways, f"with a cost of {money_text(budget.cost + more_cost)}"])
    more = math.ceil(present * over / rest) if rest else math.inf
    if is_timed(budget) and more <= min(plan.max_nodes, plan.partitions * plan.replicas) - present:
        ways.insert(0, f"with about {counted(int(more), 'node')} more")
    return " or ".join([*ways, f"with {clock_text(over)} more"])
