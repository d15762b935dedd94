"""``cerebro plan``: time and cost of a recipe's run on several numbers of nodes and partitions.

Profiles on this machine give the seconds of units, the simulator those of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any

from cerebro_elastic.core.decisions.observing import observe
from cerebro_elastic.core.history.estimates import EVALUATION
from cerebro_elastic.core.history.lineage import fresh_names
from cerebro_elastic.core.history.progress import units_left
from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.model.configs import HParams, Status
from cerebro_elastic.core.model.interfaces import Search, SearchContext
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Strategy
from cerebro_elastic.errors import RecipeError
from cerebro_elastic.recipes import Recipe, load_recipe
from cerebro_elastic.recipes.folds import why_no_folds
from cerebro_elastic.recipes.search import Budget
from cerebro_elastic.reporting.gap import gap
from cerebro_elastic.reporting.timeline import timeline
from cerebro_elastic.reporting.traffic import CommunicationCost, communication_costs
from cerebro_elastic.runs.folder import home_of
from cerebro_elastic.runs.forecast.measuring import RecipeMeasurement, measure
from cerebro_elastic.runs.forecast.plan_candidates import (
    Option,
    PlanCandidate,
    best,
    why_dominated,
    why_skipped,
)
from cerebro_elastic.runs.forecast.simulate import partitions_of, simulate_plan, toy_curves
from cerebro_elastic.runs.from_recipe import make_search, plan_of, strategies
from cerebro_elastic.runs.start.warm_start import resolve_warm_start
from cerebro_elastic.scheduling.look_ahead import Auto
from cerebro_elastic.search.halving import Halving
from cerebro_elastic.search.procedure import Procedure
from cerebro_elastic.simulation import Simulation, Times, UnitSizes
from cerebro_elastic.system.words import counted
from cerebro_elastic.training.unit_runner import StrategyCost

NODES = (1, 2, 4, 8)
"""The compared numbers of nodes, besides the recipe's own."""
MOST_PROFILED = 6
"""The largest number of configs to profile, evenly chosen; the others count as their mean."""
MOST_UNITS = 500
"""The most simulated units of each candidate, if the rest of a search follows from its start."""
DRY_RUNS = 100
"""The effort of the scheduler's dry runs for one moment (``look_ahead.DECISIONS``): a live run has more."""
DISPATCH = 0.02
"""Seconds between two units of a node: commit, decision and assignment (docs/design/performance.md)."""


@dataclass(frozen=True, slots=True)
class RunForecast:
    """The forecast of a recipe's run, by number of nodes, number of partitions, and strategy."""

    measurement: RecipeMeasurement
    """The data's size, and the profiles behind the forecast."""
    options: Sequence[Option]
    """The candidates worth considering, the fastest first."""
    best: Option
    """The option with the least product of time and cost."""
    left_out: Mapping[PlanCandidate, str]
    """The other candidates, with the reason for each."""
    communication: Sequence[CommunicationCost]
    """The bytes that the best option moves over the network, and those that other methods would move for the
    same configs; empty if the size of states is unknown."""
    configs: int
    """The number of configs that the best option trains."""
    stopped: int
    """The number of them that its search stopped, by made-up curves."""

    @property
    def memory(self) -> dict[Strategy, int]:
        """The most bytes that a rank had in use, by strategy."""
        most: dict[Strategy, int] = {}
        for profile in self.measurement.profiles:
            if profile.refusal is None:
                most[profile.strategy] = max(most.get(profile.strategy, 0), profile.peak_bytes)
        return most


def plan(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    *,
    nodes: Sequence[int] = (),
    partitions: Sequence[int] = (),
    home: str | Path | None = None,
    say: Callable[[str], None] = lambda _text: None,
) -> RunForecast:
    """Forecast a run: its time and cost for several numbers of nodes and partitions.

    A few batches of some configs are trained on this machine, by each strategy of the recipe. The rest is
    simulated.

    Args:
        recipe: A recipe, or a YAML file or mapping of one.
        nodes: Numbers of nodes to compare, by default 1, 2, 4, 8 and the recipe's.
        partitions: Numbers of partitions to compare, by default the recipe's and the numbers of nodes. A
            prepared dataset has its own.
        home: The folder of runs, by default ``$CEREBRO_HOME``, else ``./runs``.
        say: It is called with a line of text at each step.

    Returns:
        The forecast; ``best`` is the option with the least product of time and cost.

    Raises:
        RecipeError: The recipe is wrong, or no candidate can be trained.
        TaskError: The task cannot be used as it is.
        DataError: The data cannot be used as they are.

    Example:
        >>> forecast = plan("sweep.yaml", nodes=[1, 2], partitions=[2])
        >>> len(forecast.options) + len(forecast.left_out)
        2
        >>> forecast.best.candidate.partitions
        2
    """
    resolved = resolve_warm_start(load_recipe(recipe), home_of(home))
    node_counts = sorted({*nodes} or {*NODES, resolved.nodes.min, resolved.nodes.max})
    own = partitions_of(resolved)[0]
    if partitions and resolved.data.url is not None:
        raise RecipeError(
            f"the dataset {resolved.data.url} has {own} partitions, which is settled: prepare it anew for "
            "others"
        )
    default = {own} if resolved.data.url else {own} | {*node_counts} - {1}
    partition_counts = sorted({*partitions} or default)
    points = _points(resolved, own, max(node_counts))
    say(f"trying {min(MOST_PROFILED, len(points))} of {counted(len(points), 'config')} on this machine")
    measurement = measure(resolved, points, _sample(list(points)), max(node_counts))
    return forecast_run(resolved, measurement, partition_counts, node_counts, say)


def forecast_run(
    recipe: Recipe,
    measurement: RecipeMeasurement,
    partition_counts: Sequence[int],
    node_counts: Sequence[int],
    say: Callable[[str], None],
) -> RunForecast:
    """Simulate each strategy of the recipe with these numbers of partitions and nodes, from the profiles in
    ``measurement``. Raises ``RecipeError`` if no candidate can be trained."""
    refusals = {
        profile.strategy: f"{profile.config}: {profile.refusal}"
        for profile in measurement.profiles
        if profile.refusal is not None
    }
    left_out: dict[PlanCandidate, str] = {}
    candidates: list[PlanCandidate] = []
    for strategy, p, n in product(strategies(recipe), partition_counts, node_counts):
        candidate = PlanCandidate(p, n, strategy)
        reason = why_skipped(candidate, len(_points(recipe, p, n)), _replicas(recipe, p), refusals)
        if recipe.folds and (problem := why_no_folds(recipe.folds, p)):
            reason = problem
        if reason is None and p > measurement.rows:
            reason = f"there are {measurement.rows} rows for {p} partitions"
        if reason is None:
            candidates.append(candidate)
        else:
            left_out[candidate] = reason
    if not candidates:
        raise RecipeError(f"no candidate can be trained: {'; '.join(dict.fromkeys(left_out.values()))}")
    simulated: dict[PlanCandidate, Begun] = {}
    for candidate in candidates:
        say(f"forecasting {candidate}")
        simulated[candidate] = _simulate(recipe, measurement, candidate)
    options = [_option(candidate, begun) for candidate, begun in simulated.items()]
    dominated = why_dominated(options)
    options = [option for option in options if option.candidate not in dominated]
    chosen = best(options)
    begun = simulated[chosen.candidate]
    view = RunView(begun.simulation.events)
    configs = round(len(view.state.configs) / begun.of_configs)
    stopped = sum(config.status is Status.STOPPED for config in view.state.configs.values())
    sizes_known = all(p.state_bytes is not None for p in _profiles_of(measurement, chosen.candidate))
    return RunForecast(
        measurement=measurement,
        options=sorted(options, key=lambda option: option.seconds),
        best=chosen,
        left_out=left_out | dominated,
        communication=communication_costs(
            view.visits,
            measurement.bytes,
            chosen.candidate.nodes,
            share=begun.share,
            of_configs=sum(map(bool, view.visits.values())) / configs,
        )
        if sizes_known
        else (),
        configs=configs,
        stopped=round(stopped / begun.of_configs),
    )


def _points(recipe: Recipe, partitions: int, nodes: int) -> dict[str, HParams]:
    """The first configs of the search, by their ids."""
    context = SearchContext(partitions=partitions, epochs=recipe.epochs, nodes=nodes)
    proposals = make_search(recipe).propose(context)
    return {name: p.hparams for name, p in zip(fresh_names(()), proposals, strict=False)}


def _sample(names: Sequence[str]) -> tuple[str, ...]:
    """At most ``MOST_PROFILED``, the first and the last among them."""
    most = min(MOST_PROFILED, len(names))
    last = max(most - 1, 1)
    return tuple(names[i * (len(names) - 1) // last] for i in range(most))


def _profiles_of(measurement: RecipeMeasurement, candidate: PlanCandidate) -> list[StrategyCost]:
    """The profiles of the candidate's strategy: those of units side by side, if units share this machine's
    cores as they would in a run."""
    profiles = [profile for profile in measurement.profiles if profile.strategy == candidate.strategy]
    side_by_side = [profile for profile in profiles if profile.concurrent_units > 1]
    if candidate.groups > 1 and side_by_side:
        return side_by_side
    return [profile for profile in profiles if profile.concurrent_units == 1]


@dataclass(frozen=True, slots=True)
class Begun:
    """The start of a candidate's run, or all of it."""

    simulation: Simulation
    share: float = 1.0
    """The simulated share (0 to 1) of the run's units."""
    of_configs: float = 1.0
    """The created share of its configs."""

    @property
    def seconds(self) -> float:
        """Of the whole run."""
        return self.simulation.seconds / self.share


def _simulate(recipe: Recipe, measurement: RecipeMeasurement, candidate: PlanCandidate) -> Begun:
    recipe_plan = plan_of(recipe, recipe.name, candidate.partitions, _validations(recipe, candidate))
    candidate_plan = replace(
        recipe_plan,
        strategies=(candidate.strategy,),
        min_nodes=candidate.nodes,
        max_nodes=candidate.nodes,
        replicas=_replicas(recipe, candidate.partitions),
    )
    search = make_search(recipe)
    simulation = simulate_plan(
        recipe,
        candidate_plan,
        _times(recipe, measurement, candidate),
        toy_curves(recipe, candidate_plan),
        sizes=_sizes(measurement, candidate),
        policy=Auto(DRY_RUNS) if recipe.scheduler == "auto" else None,
        most_units=MOST_UNITS if _is_steady(recipe, search) else inf,
    )
    if simulation.state.outcome is not None or not isinstance(search, Procedure):
        return Begun(simulation)
    return Begun(simulation, *_shares(search, simulation.state, candidate_plan))


def _is_steady(recipe: Recipe, search: Search) -> bool:
    """Whether a run continues as it has begun: no config is trained longer than earlier ones."""
    alone = type(search) is Procedure or (isinstance(search, Halving) and not search.synchronous)
    return alone and recipe.search.budget == Budget()


def _shares(search: Procedure, state: State, candidate_plan: Plan) -> tuple[float, float]:
    """The shares of the run's units and of its configs that were simulated."""
    context = observe(state, candidate_plan)
    to_come = search.left(context) if search.sample(context.proposed) is not None else 0
    of_configs = len(context.configs) / (len(context.configs) + to_come)
    if isinstance(search, Halving):  # the others take the same time as these
        return of_configs, of_configs
    left = sum(units_left(config, candidate_plan) for config in state.configs.values())
    return of_configs * state.usage.units / (state.usage.units + left), of_configs


def _replicas(recipe: Recipe, partitions: int) -> int:
    """Of a run with this number of partitions: replicas that were chosen go with the number chosen."""
    choice = recipe.choice
    is_own = choice is None or choice.replicas is None or choice.partitions == partitions
    return recipe.replicas if is_own else 1


def _validations(recipe: Recipe, candidate: PlanCandidate) -> int:
    return candidate.partitions // recipe.folds if recipe.folds else partitions_of(recipe)[1]


def _times(recipe: Recipe, measurement: RecipeMeasurement, candidate: PlanCandidate) -> Times:
    """Seconds of units of this many partitions, from those of batches. ``Times`` has them as one rank's."""
    profiles, ranks = _profiles_of(measurement, candidate), candidate.strategy.ranks
    batches = _batches(measurement, _rows(measurement, candidate))
    units = {p.config: (p.fixed_seconds + p.batch_seconds * batches) * ranks for p in profiles}
    # The last unit of an epoch validates.
    valid = 0 if recipe.validates_apart else _batches(measurement, measurement.valid)
    validation = {p.config: EVALUATION * p.batch_seconds * valid * ranks for p in profiles}
    names = islice(fresh_names(()), recipe.limits.configs)
    return Times(
        usual=fmean(units.values()),
        configs=units,
        validation=dict.fromkeys(names, fmean(validation.values())) | validation,
        hop=fmean(p.hop_seconds or 0.0 for p in profiles),
        saving=fmean(p.save_seconds for p in profiles),
        dispatch=DISPATCH,
        data=data_share(recipe, profiles),
    )


def data_share(recipe: Recipe, profiles: Sequence[StrategyCost]) -> float:
    """The share (0 to 1) of units' seconds spent waiting for batches that one config makes for its host."""
    if not recipe.data.workers or recipe.node.batch_cache_bytes == 0:
        return 0.0
    return fmean(p.data_seconds / p.batch_seconds if p.batch_seconds else 0.0 for p in profiles)


def _sizes(measurement: RecipeMeasurement, candidate: PlanCandidate) -> UnitSizes:
    states = {p.config: p.state_bytes or 0 for p in _profiles_of(measurement, candidate)}
    rows = _rows(measurement, candidate)
    return UnitSizes(states, round(fmean(states.values())), batches=_batches(measurement, rows), samples=rows)


def _rows(measurement: RecipeMeasurement, candidate: PlanCandidate) -> int:
    """The rows of the largest partition."""
    return -(-measurement.rows // candidate.partitions)


def _batches(measurement: RecipeMeasurement, rows: int) -> int:
    return -(-rows // measurement.batch_size)


def _option(candidate: PlanCandidate, begun: Begun) -> Option:
    shares = timeline(RunView(begun.simulation.events)).shares
    present = sum(share.present for share in shares)
    known_gap = gap(begun.simulation.state)
    return Option(
        candidate,
        seconds=begun.seconds,
        idle=sum(share.idle for share in shares) / present if present else 0.0,
        gap=known_gap.share if known_gap else 0.0,
    )
