"""When the budget of a search is used up."""

from __future__ import annotations

import math

from cerebro_elastic.core.model.best import loss
from cerebro_elastic.core.model.interfaces import SearchContext
from cerebro_elastic.recipes.search import Budget
from cerebro_elastic.search.criterion import Criterion

USED_UP = "the search's budget is used up"
"""With this begins the reason of a config that the search has stopped for its budget."""


def exhausted(budget: Budget, context: SearchContext, criterion: Criterion) -> str | None:
    """The reason why the search ends now, or ``None`` if it goes on.

    Time is that of the recorded visits, so that every controller comes to the same answer. Units that have
    begun are finished.
    """
    usage = context.usage
    limits = {
        "epochs": (usage.units / context.partitions, budget.epochs),
        "units": (usage.units, budget.units),
        "timeout": (usage.elapsed, budget.timeout),
        "node_seconds": (usage.seconds, budget.node_seconds),
    }
    for name, (used, limit) in limits.items():
        if limit is not None and used >= limit:
            return f"{USED_UP}: {name} {limit:g}"
    if budget.target is not None:
        goal = loss(budget.target, criterion.mode)
        for view in context.configs:
            best = criterion.best(view)
            if math.isfinite(best) and best <= goal:
                return f"{view.config} has reached the target: {criterion.text(best)}"
    return None
