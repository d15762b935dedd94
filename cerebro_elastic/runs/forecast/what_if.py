"""What would become of a live run, as it is and if something changed? A simulation from its state says it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import count
from math import inf
from pathlib import Path
from statistics import fmean, median, stdev

from cerebro_elastic.core.decisions.moment import used_nodes
from cerebro_elastic.core.decisions.observing import observe
from cerebro_elastic.core.history.costs import cost, stays_of
from cerebro_elastic.core.history.members import by_config, named, status_of, statuses
from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.events import ConfigEnded, Event
from cerebro_elastic.core.model.interfaces import Policy, Search
from cerebro_elastic.core.model.nodes import Node, Stay
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.errors import RunError, did_you_mean
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.recipes.search import Budget, EndlessSearch
from cerebro_elastic.registry import load
from cerebro_elastic.reporting.results import leaderboard
from cerebro_elastic.reporting.tables import clock_text, money_text
from cerebro_elastic.runs.forecast.prices import PriceTrace, read_prices
from cerebro_elastic.runs.forecast.spot import (
    MARGIN,
    NodeCount,
    Played,
    SpotPlan,
    cheapest,
    cost_of,
    with_changes,
)
from cerebro_elastic.runs.forecast.toy_curves import toy_curves
from cerebro_elastic.runs.from_recipe import make_search
from cerebro_elastic.runs.recorded import RecordedRun
from cerebro_elastic.runs.results.result import check_search
from cerebro_elastic.scheduling.longest_remaining import LongestRemaining
from cerebro_elastic.search.budgets import budget_ends
from cerebro_elastic.simulation import Fault, UnitSizes, measured
from cerebro_elastic.simulation.engine import LEASE_SECONDS, Conditions, Engine
from cerebro_elastic.simulation.faults import inject
from cerebro_elastic.simulation.metrics import ContinuedCurves
from cerebro_elastic.system.words import counted, duration_seconds, option

MOST_ADDED = 1_000
_EACH = 8
"""Up to this number of nodes a plan tries each number, and some of those above it."""


@dataclass(frozen=True, slots=True)
class Change:
    """What happens to a run at once."""

    lose: tuple[str, ...] = ()
    """The nodes that are lost."""
    add: int = 0
    """How many nodes join, each on a host of its own and like those that the run has."""
    stop: tuple[str, ...] = ()
    """The configs that are stopped."""

    def __str__(self) -> str:
        parts = [f"without {', '.join(self.lose)}"] if self.lose else []
        parts += [f"with {counted(self.add, 'node')} more"] if self.add else []
        parts += [f"with {', '.join(self.stop)} stopped"] if self.stop else []
        return " and ".join(parts) or "as it is"


AS_IT_IS = Change()


@dataclass(frozen=True, slots=True)
class Outlook:
    """What becomes of a run."""

    change: Change
    """What happens to it."""
    ends: float | None
    """When it ends: seconds since 1970; ``None``: it stands still, as no node is left that could go on."""
    units: int
    """The units that are committed until then."""
    nodes: int
    """The nodes that train."""
    finished: int
    """The configs that have trained to their end by then."""
    cost: float | None = None
    """What the nodes cost from now on; ``None`` if no price is known, or if the run never ends."""

    def node_hours(self, now: float) -> float | None:
        """What the nodes cost from ``now`` on; ``None`` if the run never ends."""
        return None if self.ends is None else self.nodes * max(0.0, self.ends - now) / 3600

    def meets(self, deadline: float) -> bool:
        """Whether the run ends by then."""
        return self.ends is not None and self.ends <= deadline


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The answer to a question about a live run."""

    run: str
    now: float
    """When it was asked: seconds since 1970."""
    as_it_is: Outlook
    changed: Outlook | None
    """With the change, if one was asked about."""
    deadline: float | None = None
    """Seconds since 1970."""
    remedies: tuple[Outlook, ...] = ()
    """If the deadline is missed: what would meet it. Fewer nodes, or fewer stopped configs, would not."""
    prices: bool = False
    """Whether a plan by prices was asked for."""
    plan: SpotPlan | None = None
    """With prices: when to have how many nodes, so that the deadline is met and the run costs least;
    ``None`` without prices, or if none meets it."""
    exceeds: tuple[str, ...] = ()
    """What the plan takes more than the recipe's budget leaves: then the run would stop configs for it."""

    @property
    def answer(self) -> Outlook:
        """What was asked about: the run with the change, or as it is."""
        return self.changed or self.as_it_is


def what_if(
    run: RecordedRun,
    change: Change = AS_IT_IS,
    deadline: str | None = None,
    prices: Path | None = None,
    now: float | None = None,
) -> WhatIf:
    """Simulate the rest of a live run from its present state.

    Raises:
        RunError: The run is not live or has not trained a unit yet, or has no such node, config or room for
            nodes; the deadline cannot be read or is past; or the prices cannot be read, or do not reach from
            now to the deadline.
    """
    status = run.status()
    if not status.live:
        raise RunError(
            f"run {run.id!r} is {status.phase}: only a live one can be forecast; `cerebro simulate RECIPE "
            f"--from {run.id}` plays a recorded one through again"
        )
    now = time.time() if now is None else now
    result = run.result
    check_search(result)
    until = None if deadline is None else read_deadline(deadline, now)
    trace = None
    if prices is not None:
        trace = read_prices(prices)
        until = until or result.recipe.search.budget.until
        if until is None or until <= now:
            raise RunError(
                f"{option('prices')} needs a deadline that is to come: give {option('deadline')}; the plan "
                "is the cheapest that meets it"
            )
        if change.add or change.lose:
            raise RunError(
                f"{option('prices')} says itself when nodes join and leave: leave out {option('add')} and "
                f"{option('lose')}"
            )
        trace.check_covers(now, until, f"the trace {prices}")
    return Forecaster(result.events, result.recipe, now, trace).answer(change, until)


def read_deadline(text: str, now: float) -> float:
    """A moment in seconds since 1970: from a duration such as ``2h30m``, or a date and time such as
    ``2026-12-01T08:00``, of this machine's time zone if it names none."""
    seconds = duration_seconds(text)
    try:
        moment = datetime.fromisoformat(text.strip()).timestamp() if seconds is None else now + seconds
        shown = datetime.fromtimestamp(moment).astimezone().isoformat(" ", "minutes")
    except (ValueError, OverflowError, OSError):
        raise RunError(
            f"the deadline {text[:80]!r} cannot be read: give a duration such as 90m or 2h30m, or a date and "
            "time such as 2026-12-01T08:00 or 2026-12-01T08:00+01:00"
        ) from None
    if moment <= now:
        raise RunError(f"the deadline {text[:80]!r}, {shown}, is past: give one that is to come")
    return moment


class Forecaster:
    """Plays the rest of one run, as often as wanted.

    Args:
        events: Its history so far.
        recipe: Its recipe.
        now: The present time: seconds since 1970.
        prices: What nodes cost, from now to any deadline that is asked about; ``None`` if nobody said.
    """

    def __init__(
        self, events: Sequence[Event], recipe: Recipe, now: float, prices: PriceTrace | None = None
    ) -> None:
        view = RunView(events)
        self._recipe, self._state = recipe, view.state
        plan = view.state.plan
        assert plan is not None
        self._plan: Plan = plan
        self._run = plan.run
        if not view.trained:
            raise RunError(
                f"run {plan.run!r} has not trained a unit yet, so nothing is known of its seconds: ask later"
            )
        self._now = max(now, view.state.usage.until)
        self._prices, self._budget = prices, recipe.search.budget
        self._times = measured(events, plan)
        self._new = _startup_seconds(view)
        self._last_node = next(reversed(view.nodes.values()))
        self._metrics = ContinuedCurves(view.state, toy_curves(recipe, plan))
        self._sizes = _sizes(view)
        self._policy: Policy = load("cerebro.schedulers", recipe.scheduler)()
        objective = recipe.objective
        board = leaderboard(view, objective)
        self._worst = [row.config for row in reversed(board) if row.status is Status.LIVE]

    def answer(self, change: Change, deadline: float | None) -> WhatIf:
        """What is asked about, beside the run as it is."""
        self._check(change)
        as_it_is = self._play(AS_IT_IS)
        changed = self._play(change) if change != AS_IT_IS else None
        answer = changed or as_it_is
        remedies: tuple[Outlook, ...] = ()
        if self._prices is not None and deadline is not None:
            plan = self._cheapest(change, self._prices, deadline)
            exceeds = () if plan is None else self.exceeded(plan)
            return WhatIf(self._run, self._now, as_it_is, changed, deadline, (), True, plan, exceeds)
        if deadline is not None and not answer.meets(deadline):
            remedies = tuple(self._remedies(change, deadline))
        return WhatIf(self._run, self._now, as_it_is, changed, deadline, remedies)

    def _cheapest(self, change: Change, prices: PriceTrace, deadline: float) -> SpotPlan | None:
        """The cheapest plan that meets the deadline less a margin, or less what can be had of it."""
        segments = prices.segments(self._now, deadline, self._on_demand)
        most = len(used_nodes(self._state, self._plan)) + self._room(change)
        numbers = [n for n in range(1, most + 1) if n <= _EACH or n % (most // _EACH) == 0 or n == most]
        now = [NodeCount(self._now, most, 0.0)]  # also where the run has no nodes just now
        rest = self._engine(change, now, unbounded=True)
        rest.play()
        left = [visit for visit in rest.visits if visit.freed > self._now]
        work = sum((visit.freed - max(visit.started, self._now)) * len(visit.nodes) for visit in left)
        margin = MARGIN * (deadline - self._now) + 2 * max((visit.seconds for visit in left), default=0.0)

        def play(counts: Sequence[NodeCount]) -> Played:
            engine = self._engine(change, counts, unbounded=True)
            engine.play()
            return engine.played()

        soonest = rest.played().ends or inf
        by = min(deadline, max(deadline - margin, soonest))
        plan = cheapest(play, segments, by, numbers, work)
        present = len([node for node in self._state.nodes.values() if node.drain is None])
        return None if plan is None else with_changes(plan, present)

    def exceeded(self, plan: SpotPlan) -> tuple[str, ...]:
        """What the ``plan`` takes more than the recipe's budget leaves."""
        budget, context = self._budget, observe(self._state, self._plan)
        found = []
        if budget.cost is not None and budget.price_per_node_hour is not None:
            left = budget.cost - cost(context.stays, budget.price_per_node_hour, self._now)
            if plan.cost > left:
                found.append(f"it costs {money_text(plan.cost)}, and {money_text(max(0.0, left))} are left")
        # Had a node come just now, the time without nodes would be over, and would not count.
        ends = budget_ends(budget, replace(context, stays=[*context.stays, Stay("", self._now)]))
        begins = [*(count.begins for count in plan.counts[1:]), plan.ends]
        takes = sum(
            after - each.begins for each, after in zip(plan.counts, begins, strict=True) if each.nodes
        )
        left = ends["the end"] - self._now
        if takes > left:
            found.append(f"it has nodes for {clock_text(takes)}, and {clock_text(max(0.0, left))} are left")
        if plan.ends > ends["the deadline"]:
            found.append(f"it ends after the recipe's deadline, {budget.deadline}")
        return tuple(found)

    @property
    def _on_demand(self) -> float:
        """What a machine costs at most."""
        price = self._budget.price_per_node_hour
        return inf if price is None else price

    def _remedies(self, change: Change, deadline: float) -> Sequence[Outlook]:
        """The least number of nodes more, and the least number of configs less, the worst first, with which
        the deadline is met; each only if there is one."""
        room = self._room(change)
        left = [name for name in self._worst if name not in change.stop]
        ways: list[tuple[int, Callable[[int], Change]]] = [
            (room, lambda number: replace(change, add=change.add + number)),
            (len(left) - 1, lambda number: replace(change, stop=(*change.stop, *left[:number]))),
        ]
        found = (self._least(most, partial(self._changed, way), deadline) for most, way in ways)
        return [outlook for outlook in found if outlook is not None]

    def _changed(self, way: Callable[[int], Change], number: int) -> Outlook:
        return self._play(way(number))

    def _least(self, most: int, play: Callable[[int], Outlook], deadline: float) -> Outlook | None:
        """The outlook of the least number, up to ``most``, that meets the deadline, by bisection."""
        best, low, high = None, 1, 1
        while best is None and low <= most:
            high = min(high, most)
            outlook = play(high)
            if outlook.meets(deadline):
                best = outlook
            else:
                low, high = high + 1, high * 2
        while best is not None and low < high:
            middle = (low + high) // 2
            outlook = play(middle)
            if outlook.meets(deadline):
                best, high = outlook, middle
            else:
                low = middle + 1
        return best

    def _room(self, change: Change) -> int:
        """How many nodes more the run would use."""
        staying = [n for n in used_nodes(self._state, self._plan) if n.name not in change.lose]
        most = min(self._plan.max_nodes, self._plan.partitions * self._plan.replicas)
        return max(0, min(most - len(staying) - change.add, MOST_ADDED))

    def _check(self, change: Change) -> None:
        nodes, configs = self._state.nodes, self._state.configs
        for name in change.lose:
            if name not in nodes:
                raise RunError(f"run {self._run!r} has no node {name!r}; {did_you_mean(name, nodes)}")
        for name in change.stop:
            members = named(configs, name)
            if not members:
                seen = by_config(configs.values())
                raise RunError(f"run {self._run!r} has no config {name!r}; {did_you_mean(name, seen)}")
            if (status := status_of(config.status for config in members)) is not Status.LIVE:
                raise RunError(f"config {name!r} is {status.value} already: stop live ones")
        if not 0 <= change.add <= MOST_ADDED:
            raise RunError(f"{option('add')} is {change.add}: give a number from 0 to {MOST_ADDED}")
        if change.add and self._room(replace(change, add=0)) < change.add:
            room = self._room(replace(change, add=0))
            raise RunError(
                f"{option('add')} is {change.add}, and the run would use {room} of these: it uses at most "
                f"{counted(self._plan.max_nodes, 'node')} (`nodes` in the recipe), and no more than it has "
                "partitions"
            )

    def _play(self, change: Change) -> Outlook:
        engine = self._engine(change, ())
        engine.play()
        ended = max((visit.ended for visit in engine.visits), default=self._now)
        nodes = [n for n in used_nodes(self._state, self._plan) if n.name not in change.lose]
        ends = ended if engine.state.outcome is not None else None
        return Outlook(
            change,
            ends=ends,
            units=len(engine.visits),
            nodes=len(nodes) + change.add,
            finished=statuses(engine.state.configs.values())[Status.FINISHED.value],
            cost=None if ends is None else self._cost(engine, ends),
        )

    def _cost(self, engine: Rest, ends: float) -> float | None:
        """What the nodes cost from now on, until the run ends."""
        price = self._budget.price_per_node_hour
        if self._prices is not None:
            segments = self._prices.segments(self._now, max(ends, self._prices.times[-1]), self._on_demand)
            return cost_of(engine.stays(ends), segments)
        if price is None:
            return None
        stays, before = stays_of(engine.state), stays_of(self._state)
        return cost(stays, price, ends) - cost(before, price, self._now)

    def _engine(self, change: Change, counts: Sequence[NodeCount], *, unbounded: bool = False) -> Rest:
        """The rest of the run, ready to be played: with the change and, if there are any, with these numbers
        of nodes. ``unbounded``: no config is stopped for the budget of time or cost, configs without a unit
        probably take less than this, and nodes choose units by a rule that takes a tenth of the time."""
        state, plan = self._state, self._plan
        new = [*self._new_nodes(change.add + sum(count.nodes for count in counts))]
        times = replace(
            self._times,
            startup={**self._times.startup, **{node.name: self._new for node in new}},
            usual=_at_most(self._times.configs.values()) if unbounded else self._times.usual,
        )
        conditions = Conditions(
            times, self._metrics, self._sizes, spread=0.0, lease=LEASE_SECONDS, start=self._now
        )
        policy = LongestRemaining() if unbounded else self._policy
        recipe = _without_bounds(self._recipe) if unbounded else self._recipe
        engine = Rest(plan, policy, make_search(recipe), conditions)
        engine.take_over(state)
        for name in change.stop:
            engine.at(0.0, partial(_stop, engine, name))
        for name in change.lose:
            inject(engine, Fault("kill", name, 0.0), state.nodes[name])
        for node in new[: change.add]:
            engine.at(0.0, partial(engine.join, node))
        fresh = iter(new[change.add :])
        for each in counts:
            engine.at(each.begins - self._now, partial(engine.have, each.nodes, fresh))
        return engine

    def _new_nodes(self, number: int) -> Sequence[Node]:
        like = next(iter(self._state.nodes.values()), self._last_node)
        names = (name for n in count(1) if (name := f"new-{n}") not in self._state.nodes)
        new = replace(like, cached=(), cached_as_of=0, drain=None, starting=False, stalled=None)
        return [replace(new, name=name, host=name) for _, name in zip(range(number), names, strict=False)]


class Rest(Engine):
    """The rest of a run, which notes when nodes are there. Its moments are seconds since 1970."""

    def __init__(self, plan: Plan, policy: Policy, search: Search, conditions: Conditions) -> None:
        super().__init__(plan, policy, search, conditions)
        self._joined: dict[str, float] = {}
        self._gone: list[tuple[float, float]] = []

    def take_over(self, state: State) -> None:
        self._joined = dict.fromkeys(state.nodes, self.conditions.start)
        super().take_over(state)

    def record(self, event: Event) -> None:
        super().record(event)
        moment, there = self.conditions.start + self.now, self.state.nodes.keys()
        if len(there) != len(self._joined):
            self._gone += [(self._joined.pop(name), moment) for name in self._joined.keys() - there]
            self._joined |= dict.fromkeys(there - self._joined.keys(), moment)

    def have(self, nodes: int, fresh: Iterator[Node]) -> None:
        """From now on have this number of nodes: others join, or those leave that joined last."""
        there = [node for node in self.state.nodes.values() if node.drain is None]
        for _ in range(nodes - len(there)):
            self.join(next(fresh))
        for node in sorted(there, key=lambda node: node.registration)[nodes:]:
            inject(self, Fault("drain", node.name, self.now), node)

    def stays(self, ends: float) -> list[tuple[float, float]]:
        """For each node since when it is there, and until when; all leave when the run ends."""
        return [*self._gone, *((joined, max(joined, ends)) for joined in self._joined.values())]

    def played(self) -> Played:
        """The end, and the stays, if nodes leave that have nothing left to do."""
        if self.state.outcome is None:
            return Played(None, (), ())
        visits = self.visits
        ends = max((visit.ended for visit in visits), default=self.conditions.start)
        last = {name: visit.freed for visit in sorted(visits, key=lambda v: v.freed) for name in visit.nodes}
        final = [(joined, max(joined, last.get(name, joined))) for name, joined in self._joined.items()]
        return Played(ends, [*self._gone, *final], [left for _, left in final])


def _without_bounds(recipe: Recipe) -> Recipe:
    """The recipe without its budget of time and cost, if its search ends without it."""
    search, budget = recipe.search, recipe.search.budget
    others = Budget(epochs=budget.epochs, units=budget.units, target=budget.target)
    if isinstance(search, EndlessSearch) and search.num is None and not others.ends:
        return recipe
    return recipe.model_copy(update={"search": search.model_copy(update={"budget": others})})


def _at_most(seconds: Collection[float]) -> float:
    """What a unit of another config hardly exceeds, if units of the measured configs take these seconds."""
    return fmean(seconds) + 2 * (stdev(seconds) if len(seconds) > 1 else fmean(seconds) / 2)


def _startup_seconds(view: RunView) -> float:
    """From when a node of the run registered to the begin of its first unit: usually; 0 if that is not
    known. A unit after a node of that name has registered again is that one's."""
    stays = sorted(view.state.stays.values(), key=lambda stay: stay.joined)
    waits = []
    for number, stay in enumerate(stays):
        until = next((later.joined for later in stays[number + 1 :] if later.node == stay.node), math.inf)
        begun = [v.started for v in view.trained if stay.node in v.nodes and stay.joined <= v.started < until]
        waits += [min(begun) - stay.joined] if begun else []
    return median(waits) if waits else 0.0


def _stop(engine: Engine, name: str) -> None:
    """Stop the config of this name, with all of its trainings that go on."""
    for config in named(engine.state.configs, name):
        if config.status is Status.LIVE:
            engine.record(ConfigEnded(engine.revision, config.id, Status.STOPPED, "what if", by_hand=True))


def _sizes(view: RunView) -> UnitSizes:
    whole = [visit for visit in view.log if visit.whole and not visit.skip]
    if not whole:
        return UnitSizes()
    return UnitSizes(
        batches=max(1, round(fmean(visit.batches for visit in whole))),
        samples=max(1, round(fmean(visit.samples for visit in whole))),
    )
