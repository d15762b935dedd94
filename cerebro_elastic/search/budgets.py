"""The rest of a search's budget. A run ends its best within its budget, so an epoch that cannot end in it is
not begun."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from cerebro_elastic.core.history.costs import cost, cost_per_second, paused_seconds
from cerebro_elastic.core.model.best import loss
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.interfaces import ConfigView, SearchContext
from cerebro_elastic.recipes.search import Budget
from cerebro_elastic.search.criterion import Criterion
from cerebro_elastic.system.words import counted

MARGIN = 1.05
"""The ratio of a training's time, waits included, to that of its units."""
CONFIGS_PER_NODE = 1
"""The number of configs, per node, that train at a time among those that will finish
(docs/decisions/time-budgets.md)."""
USED_UP = "the search's budget is used up"
"""The start of the reason of a config that the search has stopped for its budget."""


def exhausted(budget: Budget, context: SearchContext, criterion: Criterion) -> str | None:
    """The reason why the search ends now, or ``None`` if it continues.

    Time is that of the recorded visits, so that every controller finds the same answer. Units that have begun
    are finished.
    """
    usage = context.usage
    units = usage.units + usage.reused
    elapsed = usage.elapsed - _paused(context)
    limits = {
        "epochs": (units / context.partitions, budget.epochs),
        "units": (units, budget.units),
        "timeout": (elapsed, budget.timeout),
        "hours": (elapsed / 3600, budget.hours),
        "cost": (cost(context.stays, budget.price_per_node_hour or 0.0, context.now), budget.cost),
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


def too_late(budget: Budget, context: SearchContext, view: ConfigView) -> str | None:
    """The reason why the config's epoch cannot end within the budget's time, even if each of its units began
    at once; ``None`` if it can."""
    if not is_timed(budget) or context.usage.began is None or is_trained(view, context):
        return None
    ends, bound = min((end, bound) for bound, end in budget_ends(budget, context).items())
    if ends == math.inf:
        return None
    left = ends - context.now
    needed = context.wait_seconds + context.rest_seconds(view.config) + context.save_seconds
    if needed <= left:
        return None
    return (
        f"{USED_UP}: its epoch takes {needed:.3g} s more, and {max(0.0, left):.3g} s are left until {bound}"
    )


def is_timed(budget: Budget) -> bool:
    """Whether a config's epoch may be ``too_late``."""
    return not (budget.seconds is budget.until is budget.cost is None)


def budget_ends(budget: Budget, context: SearchContext) -> Mapping[str, float]:
    """By name of each bound of the run's time: when the bound ends the run, if all nodes stay; wall-clock
    seconds, infinite without a bound. A run without a begun unit counts as beginning now."""
    began = context.now if context.usage.began is None else context.usage.began
    ends = {
        "the end": began + _paused(context) + (math.inf if budget.seconds is None else budget.seconds),
        "the deadline": math.inf if budget.until is None else budget.until,
    }
    if budget.cost is None or budget.price_per_node_hour is None:
        return ends
    price = budget.price_per_node_hour
    rate = cost_per_second(context.stays, price)
    left = budget.cost - cost(context.stays, price, context.now)
    return {**ends, f"the cost is {budget.cost:g}": context.now + left / rate if rate else math.inf}


def _paused(context: SearchContext) -> float:
    """The seconds without nodes since the first unit began: they count only towards the deadline."""
    began = context.usage.began
    return 0.0 if began is None else paused_seconds(context.stays, began)


def finishing(budget: Budget, context: SearchContext) -> list[str]:
    """The live configs that the budget suffices to train to their end, if nothing waits: first people's
    configs, then those that are furthest."""
    seconds = min(budget_ends(budget, context).values()) - context.now
    node_seconds, units, found = seconds * context.nodes, units_within(budget, context), list[str]()
    for view in by_progress(context):
        needed_units = units_of_training(view, context)
        needed = seconds_of_training(view, context)
        if needed <= min(seconds, node_seconds) and needed_units <= units:
            node_seconds -= needed
            units -= needed_units
            found.append(view.config)
    return found


def by_progress(context: SearchContext) -> list[ConfigView]:
    """The live configs in the order in which a budget is spent on them."""
    return sorted(context.live, key=lambda view: (not view.by_hand, -view.units))


def units_of_training(view: ConfigView, context: SearchContext) -> int:
    """A config's remaining training units."""
    return max(0, context.epochs * context.partitions - view.units)


def seconds_of_training(view: ConfigView, context: SearchContext) -> float:
    """The expected seconds of all of a config's remaining units, one after the other."""
    of_epoch, units = units_of_epoch(view, context), units_of_training(view, context)
    rest, usual = context.rest_seconds(view.config), context.rest_seconds("")
    training = rest * units / of_epoch if of_epoch else rest + usual * units / context.partitions
    return MARGIN * (training + units * context.save_seconds)


def held(budget: Budget, context: SearchContext) -> list[str]:
    """The live configs that come after those that will finish within the budget: only a few of the latter
    train at a time, so that the budget ends few in the middle."""
    first = {*finishing(budget, context)[: CONFIGS_PER_NODE * context.nodes]}
    return [view.config for view in by_progress(context) if view.config not in first]


@dataclass(frozen=True, slots=True)
class Room:
    """The part of a budget of units or epochs that is left for epochs that have not begun."""

    units: float
    """Units neither taken by a config nor needed to end an epoch that it may begin; infinite without such a
    budget."""
    stops: Mapping[str, str]
    """By config between two epochs: why the next one may not begin."""


def room_of(budget: Budget, context: SearchContext, criterion: Criterion) -> Room:
    """Epochs that have begun come first, then those of people's configs, then those of the best configs."""
    left = units_within(budget, context)
    if left == math.inf:
        return Room(left, {})
    between = []
    for view in context.configs:
        if view.status is not Status.LIVE:
            left -= not view.idle  # a person stopped it in a unit
        elif view.by_hand or has_begun(view, context):
            left -= units_of_epoch(view, context)
        else:
            between.append(view)
    stops = {}
    for view in sorted(between, key=criterion.best):
        needed = units_of_epoch(view, context)
        if needed <= left:
            left -= needed
        else:
            stops[view.config] = (
                f"{USED_UP}: its epoch takes {counted(needed, 'unit')} more, and {max(0, left):g} are left"
            )
    return Room(left, stops)


def units_within(budget: Budget, context: SearchContext) -> float:
    """The units left in the budget; infinite without a budget of units or epochs."""
    bounds = (budget.units, None if budget.epochs is None else budget.epochs * context.partitions)
    limit = min((bound for bound in bounds if bound is not None), default=math.inf)
    return limit - context.usage.units - context.usage.reused


def units_of_epoch(view: ConfigView, context: SearchContext) -> int:
    """The remaining training units of a config's epoch; of all its trainings that are live or can be
    resumed."""
    trainings = view.members or [view]
    going_on = [each for each in trainings if each.status is Status.LIVE] or trainings
    return sum(max(0, (each.epochs + 1) * context.partitions - each.units) for each in going_on)


def is_trained(view: ConfigView, context: SearchContext) -> bool:
    """Whether only evaluations remain of the config's epoch."""
    return view.units == (view.epochs + 1) * context.partitions


def has_begun(view: ConfigView, context: SearchContext) -> bool:
    """Whether the config is in an epoch, and not between two."""
    live = [each for each in view.members or [view] if each.status is Status.LIVE]
    return any(not each.idle or each.units > each.epochs * context.partitions for each in live)
