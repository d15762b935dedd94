"""A recipe's run, forecast on a virtual clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cerebro_elastic.core.model.interfaces import Policy
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.data.manifest import read_manifest
from cerebro_elastic.errors import RecipeError
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.registry import load
from cerebro_elastic.reporting.results import nodes_of
from cerebro_elastic.reporting.timeline import Share, timeline
from cerebro_elastic.runs.folder import default_home
from cerebro_elastic.runs.from_recipe import make_search, plan_of
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.runs.start.warm_start import written_out
from cerebro_elastic.simulation import (
    MetricSource,
    RecordedMetrics,
    Simulation,
    SyntheticMetrics,
    Times,
    UnitSizes,
    measured,
    read_faults,
    simulate,
)
from cerebro_elastic.version import __version__

MOST_NODES = 10_000


@dataclass(frozen=True, slots=True)
class Forecast:
    """A simulated run: its spec as a live one's would be, what came of it, and into what each node's time
    went."""

    spec: Spec
    simulation: Simulation
    shares: Sequence[Share]

    @property
    def idle(self) -> float:
        """The share of all nodes' time in which they had no unit."""
        present = sum(share.present for share in self.shares)
        return sum(share.idle for share in self.shares) / present if present else 0.0


def forecast(
    recipe: Recipe,
    *,
    times: Times | None = None,
    like: RunResult | None = None,
    spread: float = 0.0,
    faults: str = "",
    start: float = 0.0,
    home: Path | None = None,
) -> Forecast:
    """Simulate the run of ``recipe`` on its least number of nodes.

    Units take what ``times`` says; by default what they took in the recorded run ``like``, and without one
    10 s each. Configs log what those of ``like`` did, else a toy's curves. ``faults`` are sentences
    (``simulation/faults.py``), ``start`` what the wall clocks show at the beginning, and ``home`` the folder of the
    runs that the recipe names. Raises ``RecipeError`` for what cannot be simulated.
    """
    given, recipe = recipe, written_out(recipe, home or default_home())
    plan = _plan(recipe, like)
    curves = toy(recipe, plan)
    learning: MetricSource = RecordedMetrics(like.events, like.spec.plan, curves) if like else curves
    if times is None:
        times = measured(like.events, like.spec.plan) if like else Times()
    hosts = {name: node.host for name, node in nodes_of(like.events).items()} if like else {}
    done = simulated(recipe, plan, times, learning, hosts=hosts, faults=faults, spread=spread, start=start)
    spec = Spec(
        plan=plan,
        recipe=recipe.resolved(),
        recipe_digest=given.digest,
        data=recipe.rooted(recipe.data.url) if recipe.data.url else "",
        data_digest="",
        root=str(recipe.root),
        code={},
        storage="",
        version=__version__,
    )
    return Forecast(spec, done, timeline(done.events).shares)


def simulated(
    recipe: Recipe,
    plan: Plan,
    times: Times,
    learning: MetricSource,
    *,
    hosts: Mapping[str, str] | None = None,
    faults: str = "",
    spread: float = 0.0,
    start: float = 0.0,
    sizes: UnitSizes | None = None,
) -> Simulation:
    """The run of ``plan``, by the scheduler and search of ``recipe``, on its least number of nodes. What is
    not in ``hosts`` (by node) has a host of its own."""
    if plan.min_nodes > MOST_NODES:
        raise RecipeError(f"{plan.min_nodes} nodes are more than can be simulated: at most {MOST_NODES}")
    names = [f"node-{i}" for i in range(plan.min_nodes)]
    there = [Node(name, (hosts or {}).get(name, name), ranks=recipe.node.ranks) for name in names]
    policy: Policy = load("cerebro.schedulers", recipe.scheduler)()
    return simulate(
        plan,
        there,
        policy,
        make_search(recipe),
        times,
        learning,
        faults=read_faults(faults, names),
        spread=spread,
        start=start,
        sizes=sizes or UnitSizes(),
    )


def toy(recipe: Recipe, plan: Plan) -> SyntheticMetrics:
    """Curves for what the recipe's search looks at."""
    objective = recipe.objective
    metrics: Mapping[str, str] = {objective.metric: objective.mode}
    also = getattr(recipe.search, "metric", None)
    if also is not None:
        metrics = {also: objective.mode, **metrics}
    return SyntheticMetrics(metrics, plan.epochs * plan.partitions, plan.seed)


def _plan(recipe: Recipe, like: RunResult | None) -> Plan:
    partitions, validations = partitions_of(recipe)
    if like is not None and like.spec.plan.partitions != partitions:
        raise RecipeError(
            f"run {like.run!r} has {like.spec.plan.partitions} partitions, the recipe {partitions}: units of "
            "another size take other times; simulate with --seconds, or a run with as many partitions"
        )
    return plan_of(recipe, recipe.name, partitions, validations)


def partitions_of(recipe: Recipe) -> tuple[int, int]:
    """How many of training and of validation."""
    if recipe.data.url is None:
        return recipe.data.partitions, 1
    manifest = read_manifest(recipe.rooted(recipe.data.url))
    return len(manifest.train), len(manifest.valid)
