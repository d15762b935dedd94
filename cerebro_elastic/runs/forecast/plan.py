"""What a recipe's run will take, before there is one: trials on this machine tell what its units take, the
simulator what comes of that on other numbers of nodes and partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from pathlib import Path
from statistics import fmean

from cerebro_elastic.core.history.lineage import fresh_names
from cerebro_elastic.core.model.configs import HParams, Status
from cerebro_elastic.core.model.interfaces import SearchContext
from cerebro_elastic.core.model.run import Progress
from cerebro_elastic.core.model.units import Strategy
from cerebro_elastic.errors import RecipeError
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.reporting.gap import gap
from cerebro_elastic.reporting.results import gather
from cerebro_elastic.reporting.timeline import timeline
from cerebro_elastic.reporting.traffic import Way, ways
from cerebro_elastic.runs.folder import default_home
from cerebro_elastic.runs.forecast.candidates import Option, PlanCandidate, best, dominated, useless
from cerebro_elastic.runs.forecast.measuring import Measured, measure
from cerebro_elastic.runs.forecast.simulate import partitions_of, simulated, toy
from cerebro_elastic.runs.from_recipe import make_search, plan_of, strategies
from cerebro_elastic.runs.start.warm_start import written_out
from cerebro_elastic.simulation import Simulation, Times, UnitSizes
from cerebro_elastic.simulation.times import EVALUATION
from cerebro_elastic.training.measure import Measure
from cerebro_elastic.words import counted

NODES = (1, 2, 4, 8)
"""Candidates, besides the recipe's own."""
TRIED = 6
"""At most so many configs are tried, evenly chosen; the others are taken to be like their mean."""
DISPATCH = 0.02
"""Seconds between two units of a node: commit, decision and assignment (docs/design/overhead.md)."""


@dataclass(frozen=True, slots=True)
class Forecasts:
    """What was found: the data's size and the trials; ``options`` that are worth a thought, the fastest
    first, of which ``best`` has the least product of time and cost; by candidate why others are ``left_out``;
    what the best one moves over the network, and the alternatives would (``ways``; empty if the size of
    states is not known); how many ``configs`` it has, and how many of these its search ``stopped``; by what
    share it would take longer if its configs were kept within an epoch of each other (``evenness``)."""

    measured: Measured
    options: Sequence[Option]
    best: Option
    left_out: Mapping[PlanCandidate, str]
    ways: Sequence[Way]
    configs: int
    stopped: int
    evenness: float = 0.0

    @property
    def memory(self) -> dict[Strategy, int]:
        """The most bytes that a rank had in use, by choice."""
        found: dict[Strategy, int] = {}
        for profile in self.measured.profiles:
            if profile.refusal is None:
                found[profile.strategy] = max(found.get(profile.strategy, 0), profile.bytes)
        return found


def plan(
    recipe: Recipe,
    *,
    nodes: Sequence[int] = (),
    partitions: Sequence[int] = (),
    home: Path | None = None,
    say: Callable[[str], None] = lambda _text: None,
) -> Forecasts:
    """Try the recipe's units on this machine, and forecast its run on so many ``nodes`` (by default ``NODES``
    and the recipe's own) and ``partitions`` (the recipe's, and as many as there are nodes; those of a
    prepared dataset are settled), by each of the recipe's choices.

    Raises ``RecipeError`` and others for what is wrong with the recipe, as the start of its run does, and if
    no candidate can be trained.
    """
    recipe = written_out(recipe, home or default_home())
    counts = sorted({*nodes} or {*NODES, recipe.nodes.min, recipe.nodes.max})
    given = partitions_of(recipe)[0]
    if partitions and recipe.data.url is not None:
        raise RecipeError(
            f"the dataset {recipe.data.url} has {given} partitions, which is settled: prepare it anew for "
            "others"
        )
    parts = sorted({*partitions} or ({given} if recipe.data.url else {given, *counts} - {1} or {1}))
    points = _points(recipe, given, max(counts))
    say(f"trying {min(TRIED, len(points))} of {counted(len(points), 'config')} on this machine")
    measured = measure(recipe, points, _sample(list(points)), max(counts))
    return forecasts(recipe, measured, parts, counts, say)


def forecasts(
    recipe: Recipe,
    measured: Measured,
    parts: Sequence[int],
    counts: Sequence[int],
    say: Callable[[str], None],
) -> Forecasts:
    """What comes of the trials in ``measured`` for each of the recipe's choices, these numbers of partitions
    (``parts``) and of nodes (``counts``). Raises ``RecipeError`` if no candidate can be trained."""
    refused = {t.strategy: f"{t.config}: {t.refusal}" for t in measured.profiles if t.refusal is not None}
    left_out: dict[PlanCandidate, str] = {}
    played: dict[PlanCandidate, Simulation] = {}
    for strategy, p, n in product(strategies(recipe), parts, counts):
        candidate = PlanCandidate(p, n, strategy)
        why = useless(candidate, len(_points(recipe, p, n)), recipe.replicas, refused)
        if why is None and p > measured.rows:
            why = f"there are {measured.rows} rows for {p} partitions"
        if why is None:
            say(f"forecasting {candidate}")
            played[candidate] = _simulated(recipe, measured, candidate)
        else:
            left_out[candidate] = why
    if not played:
        told = "; ".join(dict.fromkeys(left_out.values()))
        raise RecipeError(f"no candidate can be trained: {told}")
    options = [_option(candidate, done) for candidate, done in played.items()]
    worse = dominated(options)
    rest = [option for option in options if option.candidate not in worse]
    chosen = best(rest)
    state, visits = gather(played[chosen.candidate].events)
    known = all(t.state is not None for t in _trials(measured, chosen.candidate))
    return Forecasts(
        measured=measured,
        options=sorted(rest, key=lambda option: option.seconds),
        best=chosen,
        left_out=left_out | worse,
        ways=ways(visits, measured.bytes, chosen.candidate.nodes) if known else (),
        configs=len(state.configs),
        stopped=sum(config.status is Status.STOPPED for config in state.configs.values()),
        evenness=_evenness(recipe, measured, chosen.candidate),
    )


def _evenness(recipe: Recipe, measured: Measured, candidate: PlanCandidate) -> float:
    """The share of its time that even progress costs, where the scheduler weighs that."""
    if recipe.scheduler != "auto" or recipe.progress is not None or recipe.search.has_rungs:
        return 0.0
    ways_to = (Progress.EVEN, Progress.FREE)
    even, free = (_simulated(recipe, measured, candidate, progress).seconds for progress in ways_to)
    return max(0.0, even / free - 1)


def _points(recipe: Recipe, partitions: int, nodes: int) -> dict[str, HParams]:
    """The configs that the search begins with, by their ids."""
    first = SearchContext(partitions=partitions, epochs=recipe.epochs, nodes=nodes)
    proposals = make_search(recipe).propose(first)
    return {name: p.hparams for name, p in zip(fresh_names(()), proposals, strict=False)}


def _sample(names: Sequence[str]) -> tuple[str, ...]:
    """At most ``TRIED``, the first and the last among them."""
    most = min(TRIED, len(names))
    last = max(most - 1, 1)
    return tuple(names[i * (len(names) - 1) // last] for i in range(most))


def _trials(measured: Measured, candidate: PlanCandidate) -> list[Measure]:
    """Those of its choice; where units share this machine's cores, as they would in a run."""
    of_choice = [profile for profile in measured.profiles if profile.strategy == candidate.strategy]
    several = [profile for profile in of_choice if profile.beside > 1]
    if candidate.groups > 1 and several:
        return several
    return [profile for profile in of_choice if profile.beside == 1]


def _simulated(
    recipe: Recipe, measured: Measured, candidate: PlanCandidate, progress: Progress | None = None
) -> Simulation:
    settled = plan_of(recipe, recipe.name, candidate.partitions, partitions_of(recipe)[1])
    alone = replace(
        settled,
        strategies=(candidate.strategy,),
        min_nodes=candidate.nodes,
        max_nodes=candidate.nodes,
        progress=progress or settled.progress,
    )
    times, sizes = _times(recipe, measured, candidate), _sizes(recipe, measured, candidate)
    return simulated(recipe, alone, times, toy(recipe, alone), sizes=sizes)


def _times(recipe: Recipe, measured: Measured, candidate: PlanCandidate) -> Times:
    """Seconds of units of this many partitions, from those of batches. ``Times`` has them as one rank's."""
    profiles, ranks = _trials(measured, candidate), candidate.strategy.ranks
    batches = _batches(recipe, _rows(measured, candidate))
    units = {t.config: (t.fixed + t.batch * batches) * ranks for t in profiles}
    # The last unit of an epoch validates.
    valid = 0 if recipe.validation == "evaluate" else _batches(recipe, measured.valid)
    validation = {t.config: EVALUATION * t.batch * valid * ranks for t in profiles}
    names = islice(fresh_names(()), recipe.limits.configs)
    return Times(
        usual=fmean(units.values()),
        configs=units,
        validation=dict.fromkeys(names, fmean(validation.values())) | validation,
        hop=fmean(t.hop or 0.0 for t in profiles),
        saving=fmean(t.saving for t in profiles),
        dispatch=DISPATCH,
    )


def _sizes(recipe: Recipe, measured: Measured, candidate: PlanCandidate) -> UnitSizes:
    states = {t.config: t.state or 0 for t in _trials(measured, candidate)}
    rows = _rows(measured, candidate)
    return UnitSizes(states, round(fmean(states.values())), batches=_batches(recipe, rows), samples=rows)


def _rows(measured: Measured, candidate: PlanCandidate) -> int:
    """Of the largest partition."""
    return -(-measured.rows // candidate.partitions)


def _batches(recipe: Recipe, rows: int) -> int:
    return -(-rows // recipe.data.batch_size)


def _option(candidate: PlanCandidate, done: Simulation) -> Option:
    shares = timeline(done.events).shares
    present = sum(share.present for share in shares)
    known = gap(done.state)
    return Option(
        candidate,
        seconds=done.seconds,
        idle=sum(share.idle for share in shares) / present if present else 0.0,
        gap=known.share if known else 0.0,
    )
