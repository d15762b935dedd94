"""When will a run end? And its optimality gap, during the run and after its end.

    gap = forecast / bound - 1

Both are seconds from the start of the run's first visit, and lower bounds of an open shop
(``scheduling/openshop/bounds.py``): no node ends before it has done all of its units, no config before it has
visited all partitions.

- The *bound* is that of a run without waits. A node, or a config, needs the training seconds of its visits so
  far, plus those of its remaining units. Visits count with their real seconds, on their node; remaining units
  with the expected seconds, on the home nodes of their partitions. The bound contains no hops.
- The *forecast* is that of the run as it is: the remaining work of a node or config begins now. "Now" is the
  latest end of a visit, or the start of the node's or config's present attempt, if that is later.

A unit is expected to take its config's seconds (``core/history/estimates.py``) times the factor of its node.
Only the ratios of these factors count: together they follow the last few visits, which may take three times
as long for a moment on a busy machine. The scale is such that the expected and the real seconds of all visits
so far are equal in sum.

So the gap is the share of time lost to waits, hops, profiles and lost attempts. At the end the forecast is
the makespan, and all seconds are measured.

From the *end* of its search the forecast has the configs still to come, if each is trained to its end, and
the budget: a run ends with that, and only the configs that fit in finish.

Both assume that the present nodes do the rest: no node joins or is lost, and the search stops configs only
for its budget. The cost of a loss (the lost attempt, the wait for the lease) is in the gap. Where partitions
have replicas, or are fetched on demand, the remaining units are spread over all nodes by their speeds, which
makes the bound weaker. Units of a gang count for the leading node. Remaining evaluations count only in the
forecast, spread over the nodes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cerebro_elastic.core.decisions.moment import used_nodes
from cerebro_elastic.core.decisions.observing import observe
from cerebro_elastic.core.history.estimates import (
    all_unit_seconds,
    begun_at,
    evaluation_seconds,
    mean_epoch_seconds,
    speed_factors,
)
from cerebro_elastic.core.history.members import by_config
from cerebro_elastic.core.history.progress import units_left
from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import EpochSeconds, NodeUsage, State
from cerebro_elastic.recipes.search import Budget, EndlessSearch, HyperbandSearch, SampledSearch, search_type
from cerebro_elastic.scheduling.openshop.bounds import lower_bound
from cerebro_elastic.scheduling.openshop.instances import instance
from cerebro_elastic.search.budgets import budget_ends, finishing, units_within


@dataclass(frozen=True, slots=True)
class Gap:
    """The optimality gap of a run. Times are seconds from the start of its first visit."""

    forecast: float
    """When the run will end, by its budget or before."""
    needed: float
    """When it would end without a budget."""
    bound: float
    """The earliest time at which it could end."""
    share: float
    """The gap as a share of the bound: 0.1 if the run takes 10 % longer."""
    unfinished: int = 0
    """The number of configs that the budget will have stopped."""


@dataclass(frozen=True, slots=True)
class SearchEnd:
    """The end of a run's search."""

    budget: Budget = field(default_factory=Budget)
    num: int = 0
    """The number of configs that the search trains to their end, if known before all are created."""
    endless: bool = False
    """Whether only its budget ends it."""


NO_END = SearchEnd()


def search_end(recipe: Mapping[str, Any]) -> SearchEnd:
    """The end of the search of a resolved recipe."""
    search = recipe.get("search", {})
    kind, num = search_type(search.get("method", "grid")), search.get("num")
    return SearchEnd(
        Budget.model_validate(search.get("budget", {})),
        num=num or 0 if kind is SampledSearch else 0,
        endless=issubclass(kind, EndlessSearch) and kind is not HyperbandSearch and num is None,
    )


@dataclass(frozen=True, slots=True)
class _Left:
    """The remaining training."""

    nodes: Sequence[str]
    speed_factors: Mapping[str, float]
    """By node: the ratio of a unit's seconds on it to the usual ones."""
    configs: Mapping[str, Sequence[float]]
    """By config: the remaining seconds on each of the ``nodes``."""
    spread: bool
    """Whether nodes may do each other's work."""
    evaluations: Mapping[str, float]
    """By config: the remaining seconds of its evaluations."""

    @property
    def evaluations_of_node(self) -> Mapping[str, float]:
        """By node: its share of the seconds of ``evaluations``."""
        return dict.fromkeys(self.nodes, sum(self.evaluations.values()) / max(1, len(self.nodes)))


def gap(state: State, end: SearchEnd = NO_END) -> Gap | None:
    """The gap of a run in this state; ``None`` before its first visit, and while its nodes do not have all
    partitions."""
    plan, usage = state.plan, state.usage
    if plan is None or usage.began is None or not usage.nodes:
        return None
    left = _left(state, plan)
    if left is None:
        return None
    training = sum(busy.seconds for busy in usage.nodes.values()) / usage.seconds
    configs = {each.unit.config: each for each in state.underway() if not state.is_queued(each)}
    bound = max(
        *(busy.seconds for busy in [*usage.nodes.values(), *usage.configs.values()]),
        _end(left, _spent(usage.nodes), _spent(usage.configs), training),
    )
    if bound <= 0:
        return None
    present = max(
        bound,
        usage.elapsed,
        _end(
            left,
            _later(_free(state, left.nodes, state.attempts), left.evaluations_of_node),
            _later(_free(state, left.configs, configs), left.evaluations),
            1.0,
        ),
    )
    needed = present + _to_come(state, plan, left, end)
    known = Gap(needed, needed, bound, present / bound - 1)
    return known if state.outcome is not None else _within(known, state, plan, end)


def _to_come(state: State, plan: Plan, left: _Left, end: SearchEnd) -> float:
    """The nodes' seconds for configs that the search has yet to create."""
    units = len(state.configs) * plan.epochs * plan.trained
    number = max(0, end.num - len(by_config(state.configs.values())))
    seconds = sum(all_unit_seconds(state, state.configs).values())
    return (
        number * seconds / len(state.configs) * units / len(state.configs) / len(left.nodes)
        if number
        else 0.0
    )


def _within(known: Gap, state: State, plan: Plan, end: SearchEnd) -> Gap:
    """The forecast within the budget."""
    if not end.budget.ends:
        return known
    context, began = observe(state, plan), state.usage.began or 0.0
    units = sum(units_left(config, plan) for config in state.configs.values())
    affordable = units_within(end.budget, context)
    ends = min(*budget_ends(end.budget, context).values(), math.inf) - began
    if affordable < units:
        ends = min(ends, state.usage.elapsed + (known.needed - state.usage.elapsed) * affordable / units)
    if ends >= known.needed and not end.endless:
        return known
    proposed = len(by_config(state.configs.values()))
    forecast = max(state.usage.elapsed, ends if ends < math.inf else known.needed)
    over, left = known.needed - forecast, known.needed - state.usage.elapsed
    # Before the first units the search has no seconds on which to decide.
    least = math.ceil(len(context.live) * over / left) if over > 0 else 0
    stopped = max(least, len(context.live) - len(finishing(end.budget, context)))
    return replace(known, forecast=forecast, unfinished=stopped + max(0, end.num - proposed))


def _left(state: State, plan: Plan) -> _Left | None:
    names = [node.name for node in used_nodes(state, plan)]
    live = [config for config in state.configs.values() if config.status is Status.LIVE]
    homes = {j: [n for n in state.homes.get(j, ()) if n in names] for j in range(plan.partitions)}
    if live and not all(homes.values()):
        return None
    spread = plan.on_demand or any(len(names) > 1 for names in homes.values())
    seconds, of_all = all_unit_seconds(state, state.configs), mean_epoch_seconds(state.epoch_seconds.values())
    evaluations = {
        name: evaluation_seconds(state.epoch_seconds.get(name, EpochSeconds()), of_all, unit)
        for name, unit in seconds.items()
    }
    factors = _scaled(state, plan, names, seconds, evaluations, spread=spread)
    lead = {j: min(names, key=factors.__getitem__) for j, names in homes.items() if names}
    usual = sum(factors.values()) / len(names) if names else 1.0
    return _Left(
        nodes=names,
        speed_factors=factors,
        configs={config.id: _row(plan, config, seconds[config.id], lead, factors) for config in live},
        spread=spread,
        evaluations={
            c.id: ((plan.epochs - c.epoch) * plan.evaluations - len(c.evaluated)) * evaluations[c.id] * usual
            for c in live
        },
    )


def _scaled(
    state: State,
    plan: Plan,
    names: Sequence[str],
    seconds: Mapping[str, float],
    evaluations: Mapping[str, float],
    *,
    spread: bool,
) -> dict[str, float]:
    """The factors of the nodes, on such a scale that the visits so far take their real seconds. Nodes that
    ``spread`` the work do units by their speeds, others those of their partitions."""
    if not names:
        return {}
    factors = speed_factors(state, names)
    usual = (
        len(names) / sum(1 / f for f in factors.values()) if spread else sum(factors.values()) / len(names)
    )
    expected = sum(
        trained * seconds[name] + evaluated * evaluations[name]
        for name, (trained, evaluated) in ((c.id, _own_units(c, plan)) for c in state.configs.values())
    )
    scale = state.usage.seconds / expected if expected and state.usage.seconds else 1.0
    return {name: scale * factor / usual for name, factor in factors.items()}


def _own_units(config: Config, plan: Plan) -> tuple[int, int]:
    """The units trained and evaluated by the config itself, without those of its parent."""
    parent, epochs = config.parent, config.epoch - (config.parent.epoch if config.parent else 0)
    trained = epochs * plan.trained + len(config.visited) - (len(parent.visited) if parent else 0)
    return max(0, trained), max(0, epochs * plan.evaluations + len(config.evaluated))


def _row(
    plan: Plan, config: Config, seconds: float, lead: Mapping[int, str], speed_factors: Mapping[str, float]
) -> list[float]:
    """The config's remaining seconds on each node."""
    later = plan.epochs - config.epoch - 1
    row = dict.fromkeys(speed_factors, 0.0)
    for j in plan.trains(config.fold):
        name = lead[j]
        row[name] += (later + (j not in config.visited)) * seconds * speed_factors[name]
    return list(row.values())


def _spent(busy: Mapping[str, NodeUsage]) -> dict[str, float]:
    return {name: b.seconds for name, b in busy.items()}


def _free(state: State, names: Iterable[str], attempts: Mapping[str, Attempt]) -> dict[str, float]:
    """When each node or config begins its remaining work: now, or at the start of its present attempt."""
    began, now = state.usage.began or 0.0, state.usage.elapsed
    since = {name: (begun_at(state, attempt) or began) - began for name, attempt in attempts.items()}
    return {name: since.get(name, now) for name in names}


def _later(free: Mapping[str, float], seconds: Mapping[str, float]) -> dict[str, float]:
    return {name: at + seconds.get(name, 0.0) for name, at in free.items()}


def _end(left: _Left, nodes: Mapping[str, float], configs: Mapping[str, float], scale: float) -> float:
    """The lower bound on the end of ``scale`` times the remaining work, if ``nodes`` and ``configs`` are free
    from these times on."""
    if not left.configs:
        return 0.0
    ready = [nodes.get(name, 0.0) for name in left.nodes]
    begun = [configs.get(name, 0.0) for name in left.configs]
    rows = [[scale * seconds for seconds in row] for row in left.configs.values()]
    if left.spread:
        speeds = [1 / left.speed_factors[name] for name in left.nodes]
        work = sum(s * speed for row in rows for s, speed in zip(row, speeds, strict=True))
        shared = (work + sum(r * s for r, s in zip(ready, speeds, strict=True))) / sum(speeds)
        return max(shared, *(b + sum(row) for b, row in zip(begun, rows, strict=True)))
    return lower_bound(instance(rows, node_ready=ready, config_ready=begun))
