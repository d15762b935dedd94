"""How does a live run end, as it is and after a change?

State, change and measured seconds give the end, the cost, and the number of fully trained configs: a
simulation continues from the present state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from statistics import fmean, median

from cerebro_elastic.core.decisions.moment import used_nodes
from cerebro_elastic.core.history.costs import cost, stays_of
from cerebro_elastic.core.history.members import by_config, named, status_of, statuses
from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.events import ConfigEnded, Event
from cerebro_elastic.core.model.interfaces import Policy
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.errors import RunError, did_you_mean
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.registry import load
from cerebro_elastic.reporting.results import leaderboard
from cerebro_elastic.runs.forecast.simulate import toy_curves
from cerebro_elastic.runs.from_recipe import make_search
from cerebro_elastic.simulation import Fault, UnitSizes, measured
from cerebro_elastic.simulation.engine import LEASE_SECONDS, Conditions, Engine
from cerebro_elastic.simulation.faults import inject
from cerebro_elastic.simulation.metrics import ContinuedCurves
from cerebro_elastic.system.words import counted, option

MOST_ADDED = 1_000


@dataclass(frozen=True, slots=True)
class Change:
    """A change that happens to a run at once."""

    lose: tuple[str, ...] = ()
    """The lost nodes."""
    add: int = 0
    """The number of nodes that join, each on its own host and like those of the run."""
    stop: tuple[str, ...] = ()
    """The stopped configs."""

    def __str__(self) -> str:
        parts = [f"without {', '.join(self.lose)}"] if self.lose else []
        parts += [f"with {counted(self.add, 'node')} more"] if self.add else []
        parts += [f"with {', '.join(self.stop)} stopped"] if self.stop else []
        return " and ".join(parts) or "as it is"


AS_IT_IS = Change()


@dataclass(frozen=True, slots=True)
class Outlook:
    """The forecast of a run."""

    change: Change
    """The change."""
    ends: float | None
    """When it ends: seconds since 1970; ``None``: it never ends, as no node is left to continue."""
    node_hours: float | None
    """The node hours until then; ``None`` if it never ends."""
    units: int
    """The units committed by then."""
    nodes: int
    """The training nodes."""
    finished: int
    """The fully trained configs by then."""
    cost: float | None = None
    """The cost of the nodes from now on; ``None`` without a price, or if the run never ends."""

    def meets(self, deadline: float) -> bool:
        """Whether the run ends by then."""
        return self.ends is not None and self.ends <= deadline


class RestOfRun:
    """The rest of one run; it can be played any number of times.

    Args:
        events: Its history so far.
        recipe: Its recipe.
        now: The present time: seconds since 1970.
    """

    def __init__(self, events: Sequence[Event], recipe: Recipe, now: float) -> None:
        view = RunView(events)
        self._recipe, self._state = recipe, view.state
        plan = view.state.plan
        assert plan is not None
        self._plan: Plan = plan
        self.run = plan.run
        if not view.trained:
            raise RunError(
                f"run {plan.run!r} has not trained a unit yet, so nothing is known of its seconds: ask later"
            )
        self.now = max(now, view.state.usage.until)
        self._price = recipe.search.budget.price_per_node_hour
        self._times = measured(events, plan)
        self._new = _startup_seconds(view)
        self._last_node = next(reversed(view.nodes.values()))
        self._metrics = ContinuedCurves(view.state, toy_curves(recipe, plan))
        self._sizes = _sizes(view)
        self._policy: Policy = load("cerebro.schedulers", recipe.scheduler)()
        objective = recipe.objective
        board = leaderboard(view, objective)
        self.worst = [row.config for row in reversed(board) if row.status is Status.LIVE]

    def room(self, change: Change) -> int:
        """The number of further nodes that the run would use."""
        staying = [n for n in used_nodes(self._state, self._plan) if n.name not in change.lose]
        most = min(self._plan.max_nodes, self._plan.partitions * self._plan.replicas)
        return max(0, min(most - len(staying) - change.add, MOST_ADDED))

    def check(self, change: Change) -> None:
        """Raise ``RunError`` if the change is impossible for the run."""
        nodes, configs = self._state.nodes, self._state.configs
        for name in change.lose:
            if name not in nodes:
                raise RunError(f"run {self.run!r} has no node {name!r}; {did_you_mean(name, nodes)}")
        for name in change.stop:
            members = named(configs, name)
            if not members:
                seen = by_config(configs.values())
                raise RunError(f"run {self.run!r} has no config {name!r}; {did_you_mean(name, seen)}")
            if (status := status_of(config.status for config in members)) is not Status.LIVE:
                raise RunError(f"config {name!r} is {status.value} already: stop live ones")
        if not 0 <= change.add <= MOST_ADDED:
            raise RunError(f"{option('nodes')} is +{change.add}: give a number from 0 to {MOST_ADDED}")
        if change.add and self.room(replace(change, add=0)) < change.add:
            room = self.room(replace(change, add=0))
            raise RunError(
                f"{option('nodes')} is +{change.add}, and the run would use {room} of these: it uses at most "
                f"{counted(self._plan.max_nodes, 'node')} (`nodes` in the recipe), and no more than it has "
                "partitions"
            )

    def outlook(self, change: Change) -> Outlook:
        """The forecast of the run with the change."""
        engine = self._engine(change)
        engine.play()
        ended = max((visit.ended for visit in engine.visits), default=self.now)
        nodes = [n for n in used_nodes(self._state, self._plan) if n.name not in change.lose]
        ends = ended if engine.state.outcome is not None else None
        number = len(nodes) + change.add
        return Outlook(
            change,
            ends=ends,
            nodes=number,
            node_hours=None if ends is None else number * max(0.0, ends - self.now) / 3600,
            units=len(engine.visits),
            finished=statuses(engine.state.configs.values())[Status.FINISHED.value],
            cost=None if ends is None else self._cost(engine, ends),
        )

    def _cost(self, engine: Engine, ends: float) -> float | None:
        """The cost of the nodes from now on, until the run ends."""
        if self._price is None:
            return None
        stays, before = stays_of(engine.state), stays_of(self._state)
        return cost(stays, self._price, ends) - cost(before, self._price, self.now)

    def _engine(self, change: Change) -> Engine:
        """The rest of the run with the change, ready to be played."""
        state, new = self._state, self._new_nodes(change.add)
        startup = {**self._times.startup, **{node.name: self._new for node in new}}
        times = replace(self._times, startup=startup)
        conditions = Conditions(
            times, self._metrics, self._sizes, spread=0.0, lease=LEASE_SECONDS, start=self.now
        )
        engine = Engine(self._plan, self._policy, make_search(self._recipe), conditions)
        engine.take_over(state)
        for name in change.stop:
            engine.at(0.0, partial(_stop, engine, name))
        for name in change.lose:
            inject(engine, Fault("kill", name, 0.0), state.nodes[name])
        for node in new:
            engine.at(0.0, partial(engine.join, node))
        return engine

    def _new_nodes(self, number: int) -> Sequence[Node]:
        like = next(iter(self._state.nodes.values()), self._last_node)
        names = (name for n in count(1) if (name := f"new-{n}") not in self._state.nodes)
        new = replace(like, cached=(), cached_as_of=0, drain=None, starting=False, stalled=None)
        return [replace(new, name=name, host=name) for _, name in zip(range(number), names, strict=False)]


def _startup_seconds(view: RunView) -> float:
    """The usual seconds from a node's registration to the start of its first unit; 0 if unknown. A unit after
    a new registration of the same name counts for the new one."""
    stays = sorted(view.state.stays.values(), key=lambda stay: stay.joined)
    waits = []
    for number, stay in enumerate(stays):
        until = next((later.joined for later in stays[number + 1 :] if later.node == stay.node), math.inf)
        begun = [v.started for v in view.trained if stay.node in v.nodes and stay.joined <= v.started < until]
        waits += [min(begun) - stay.joined] if begun else []
    return median(waits) if waits else 0.0


def _stop(engine: Engine, name: str) -> None:
    """Stop the config of this name, with all of its live trainings."""
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
