"""A recipe's run, simulated on a virtual clock: nothing is trained."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cerebro_elastic import simulation
from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.model.interfaces import Policy
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.data.manifest import read_manifest
from cerebro_elastic.errors import RecipeError
from cerebro_elastic.recipes import Recipe, load_recipe
from cerebro_elastic.recipes.folds import why_no_folds
from cerebro_elastic.registry import load
from cerebro_elastic.reporting.timeline import Share, timeline
from cerebro_elastic.runs.folder import find_run, home_of
from cerebro_elastic.runs.from_recipe import make_search, plan_of, spec_without_run, validations
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.runs.start.warm_start import resolve_warm_start
from cerebro_elastic.simulation import (
    Fault,
    MetricSource,
    RecordedMetrics,
    Simulation,
    SyntheticMetrics,
    Times,
    UnitSizes,
    measured,
)
from cerebro_elastic.system.words import option

MOST_NODES = 10_000


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """A run simulated to its end."""

    spec: Spec
    """The run's spec, as that of a live run would be."""
    simulation: Simulation
    """The simulated events, the last state and the run's seconds."""
    shares: Sequence[Share]
    """The use of each node's time, a value for each node."""

    @property
    def seconds(self) -> float:
        """Seconds from the start of the first unit to the end of the last one."""
        return self.simulation.seconds

    @property
    def idle(self) -> float:
        """The share (0 to 1) of all nodes' time in which they had no unit."""
        present = sum(share.present for share in self.shares)
        return sum(share.idle for share in self.shares) / present if present else 0.0


def simulate(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    *,
    seconds: float | Times | None = None,
    like: str | Path | RunResult | None = None,
    noise: float = 0.0,
    faults: Sequence[Fault] = (),
    start_time: float = 0.0,
    home: str | Path | None = None,
) -> SimulatedRun:
    """Simulate a run on the recipe's least number of nodes; nothing is trained.

    Scheduler and search decide as in a live run.

    Args:
        recipe: A recipe, or a YAML file or mapping of one.
        seconds: The seconds of a unit; by default those in the run ``like``, and 10 s without one.
        like: A recorded run, by id, folder or result. Simulated configs log its configs' values; without one
            they log made-up curves.
        noise: The spread of the units' seconds, as the sigma of a log-normal factor with mean 1.
        faults: Faults of nodes, such as ``Fault("kill", "node-1", 30.0, seconds=10.0)``.
        start_time: The nodes' time at the start, in seconds since 1970; 0: the present time if the recipe has
            a deadline.
        home: The folder of runs, by default ``$CEREBRO_HOME``, else ``./runs``.

    Returns:
        The simulated run: its events, its seconds, and the use of each node.

    Raises:
        RecipeError: The recipe is wrong, or ``like`` has another number of partitions.
        ScheduleError: The times cannot be simulated.

    Example:
        >>> simulated = simulate("sweep.yaml", seconds=30)
        >>> simulated.seconds
        120.0
        >>> simulate("sweep.yaml", like="sweep").seconds > 0
        True
    """
    given = load_recipe(recipe)
    resolved = resolve_warm_start(given, home_of(home))
    recorded = like if like is None or isinstance(like, RunResult) else RunResult(find_run(like, home))
    plan = _plan(resolved, recorded)
    simulated = simulate_plan(
        resolved,
        plan,
        _times(seconds, recorded),
        _metric_source(resolved, plan, recorded),
        hosts={name: node.host for name, node in recorded.view.nodes.items()} if recorded else {},
        faults=faults,
        spread=noise,
        start=start_time,
    )
    data = resolved.rooted(resolved.data.url) if resolved.data.url else ""
    spec = spec_without_run(resolved, plan, data, given=given.digest)
    return SimulatedRun(spec, simulated, timeline(RunView(simulated.events)).shares)


def simulate_plan(
    recipe: Recipe,
    plan: Plan,
    times: Times,
    metrics: MetricSource,
    *,
    hosts: Mapping[str, str] | None = None,
    faults: Sequence[Fault] = (),
    spread: float = 0.0,
    start: float = 0.0,
    sizes: UnitSizes | None = None,
    policy: Policy | None = None,
    most_units: float = math.inf,
) -> Simulation:
    """Simulate ``plan`` on its least number of nodes, with the search of ``recipe``, and its scheduler unless
    a ``policy`` is given; only the first ``most_units``. A node outside ``hosts`` (host by node) has its own
    host. Without a ``start`` a run with a deadline begins now."""
    if plan.min_nodes > MOST_NODES:
        raise RecipeError(f"{plan.min_nodes} nodes are more than can be simulated: at most {MOST_NODES}")
    names = [f"node-{i}" for i in range(plan.min_nodes)]
    nodes = [Node(name, (hosts or {}).get(name, name), ranks=recipe.node.ranks) for name in names]
    if policy is None:
        policy = load("cerebro.schedulers", recipe.scheduler)()
    if not start and recipe.search.budget.until is not None:
        start = time.time()
    return simulation.simulate(
        plan,
        nodes,
        policy,
        make_search(recipe),
        times,
        metrics,
        faults=faults,
        spread=spread,
        start=start,
        sizes=sizes or UnitSizes(),
        most_units=most_units,
    )


def toy_curves(recipe: Recipe, plan: Plan) -> SyntheticMetrics:
    """Made-up curves of the metrics that the recipe's search compares."""
    objective = recipe.objective
    metrics: Mapping[str, str] = {objective.metric: objective.mode}
    other_metric = getattr(recipe.search, "metric", None)
    if other_metric is not None:
        metrics = {other_metric: objective.mode, **metrics}
    return SyntheticMetrics(metrics, plan.epochs * plan.trained, plan.seed)


def partitions_of(recipe: Recipe) -> tuple[int, int]:
    """The numbers of partitions for training and for validation."""
    if recipe.data.url is None:
        return recipe.data.partitions, recipe.data.partitions // recipe.folds if recipe.folds else 1
    manifest = read_manifest(recipe.rooted(recipe.data.url))
    if recipe.folds and (problem := why_no_folds(recipe.folds, len(manifest.train))):
        raise RecipeError(f"validation: {problem} of {recipe.data.url}")
    return len(manifest.train), validations(recipe, manifest)


def _plan(recipe: Recipe, like: RunResult | None) -> Plan:
    partitions, validations = partitions_of(recipe)
    if like is not None and like.spec.plan.partitions != partitions:
        raise RecipeError(
            f"run {like.run!r} has {like.spec.plan.partitions} partitions, the recipe {partitions}: units of "
            f"another size take other times; simulate with {option('seconds')}, or a run with as many "
            "partitions"
        )
    return plan_of(recipe, recipe.name, partitions, validations)


def _times(seconds: float | Times | None, like: RunResult | None) -> Times:
    if isinstance(seconds, Times):
        return seconds
    if seconds is not None:
        return Times(usual=seconds)
    return measured(like.events, like.spec.plan) if like else Times()


def _metric_source(recipe: Recipe, plan: Plan, like: RunResult | None) -> MetricSource:
    curves = toy_curves(recipe, plan)
    return RecordedMetrics(like.events, like.spec.plan, curves) if like else curves
