"""When a search has had enough."""

from __future__ import annotations

import math

from cerebro_elastic.core.model.interfaces import SearchContext
from cerebro_elastic.recipes.search import Budget
from cerebro_elastic.search.objective import Objective


def exhausted(budget: Budget, context: SearchContext, objective: Objective) -> str | None:
    """Why the search ends here, if it does. Time is that of the visits, so that whoever asks gets the same
    answer; units that have begun end first."""
    usage = context.usage
    limits = {
        "epochs": (usage.units / context.partitions, budget.epochs),
        "units": (usage.units, budget.units),
        "timeout": (usage.elapsed, budget.timeout),
        "node_seconds": (usage.seconds, budget.node_seconds),
    }
    for name, (used, limit) in limits.items():
        if limit is not None and used >= limit:
            return f"the search's budget is used up: {name} {limit:g}"
    if budget.target is not None:
        goal = objective.sign * budget.target
        for view in context.configs:
            best = objective.best(view)
            if math.isfinite(best) and best <= goal:
                return f"{view.config} has reached the target: {objective.told(best)}"
    return None
