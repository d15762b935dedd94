"""What would become of a live run, as it is and if something changed? A simulation from its state says it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import count
from statistics import fmean

from cerebro_elastic.core.decisions.moment import used_nodes
from cerebro_elastic.core.history.members import by_config, named, status_of, statuses
from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.events import ConfigEnded, Event, UnitCommitted
from cerebro_elastic.core.model.interfaces import Policy
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.errors import RunError, did_you_mean
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.registry import load
from cerebro_elastic.reporting.results import leaderboard
from cerebro_elastic.runs.forecast.simulate import toy_curves
from cerebro_elastic.runs.from_recipe import make_search
from cerebro_elastic.runs.recorded import RecordedRun
from cerebro_elastic.simulation import Fault, UnitSizes, measured
from cerebro_elastic.simulation.engine import LEASE_SECONDS, Conditions, Engine
from cerebro_elastic.simulation.faults import inject
from cerebro_elastic.simulation.metrics import ContinuedCurves
from cerebro_elastic.system.words import counted, option

_DURATION = re.compile(
    r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?"
)
_UNIT_SECONDS = (86400.0, 3600.0, 60.0, 1.0)
MOST_ADDED = 1_000


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

    @property
    def answer(self) -> Outlook:
        """What was asked about: the run with the change, or as it is."""
        return self.changed or self.as_it_is


def what_if(
    run: RecordedRun,
    change: Change = AS_IT_IS,
    deadline: str | None = None,
    now: float | None = None,
) -> WhatIf:
    """Simulate the rest of a live run from its present state.

    Raises:
        RunError: The run is not live or has not trained a unit yet, or has no such node, config or room for
            nodes, or the deadline cannot be read or is past.
    """
    status = run.status()
    if not status.live:
        raise RunError(
            f"run {run.id!r} is {status.phase}: only a live one can be forecast; `cerebro simulate RECIPE "
            f"--from {run.id}` plays a recorded one through again"
        )
    now = time.time() if now is None else now
    until = None if deadline is None else read_deadline(deadline, now)
    result = run.result
    return Forecaster(result.events, result.recipe, now).answer(change, until)


def read_deadline(text: str, now: float) -> float:
    """A moment in seconds since 1970: from a duration such as ``2h30m``, or a date and time such as
    ``2026-12-01T08:00``, of this machine's time zone if it names none."""
    match = _DURATION.fullmatch(text.strip())
    try:
        if match is not None and any(match.groups()):
            numbers = zip(match.groups("0"), _UNIT_SECONDS, strict=True)
            moment = now + sum(float(number) * unit for number, unit in numbers)
        else:
            moment = datetime.fromisoformat(text.strip()).timestamp()
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
    """

    def __init__(self, events: Sequence[Event], recipe: Recipe, now: float) -> None:
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
        self._times = measured(events, plan)
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
        if deadline is not None and not answer.meets(deadline):
            remedies = tuple(self._remedies(change, deadline))
        return WhatIf(self._run, self._now, as_it_is, changed, deadline, remedies)

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
        state, plan = self._state, self._plan
        conditions = Conditions(
            self._times, self._metrics, self._sizes, spread=0.0, lease=LEASE_SECONDS, start=self._now
        )
        engine = Engine(plan, self._policy, make_search(self._recipe), conditions)
        engine.take_over(state)
        for name in change.stop:
            engine.at(0.0, partial(_stop, engine, name))
        for name in change.lose:
            inject(engine, Fault("kill", name, 0.0), state.nodes[name])
        for node in self._new_nodes(change.add):
            engine.at(0.0, partial(engine.join, node))
        engine.play()
        visits = [event.visit for event in engine.events if isinstance(event, UnitCommitted)]
        ended = max((visit.ended for visit in visits), default=self._now)
        return Outlook(
            change,
            ends=ended if engine.state.outcome is not None else None,
            units=len(visits),
            nodes=len([n for n in used_nodes(state, plan) if n.name not in change.lose]) + change.add,
            finished=statuses(engine.state.configs.values())[Status.FINISHED.value],
        )

    def _new_nodes(self, number: int) -> Sequence[Node]:
        like = next(iter(self._state.nodes.values()), None)
        if like is None:
            return []
        names = (name for n in count(1) if (name := f"new-{n}") not in self._state.nodes)
        new = replace(like, cached=(), cached_as_of=0, drain=None, starting=False, stalled=None)
        return [replace(new, name=name, host=name) for _, name in zip(range(number), names, strict=False)]


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
