"""From an instance to a schedule: the public function, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cerebro_elastic.errors import ScheduleError
from cerebro_elastic.openshop.bounds import lower_bound
from cerebro_elastic.openshop.bulk import bulk, suits
from cerebro_elastic.openshop.checks import (
    LARGEST_SEED,
    LONGEST_SEARCH,
    Array,
    number,
    numbers,
    one_of,
    whole,
)
from cerebro_elastic.openshop.dispatch import ScheduledUnit
from cerebro_elastic.openshop.exact import exact
from cerebro_elastic.openshop.instances import Instance, instance
from cerebro_elastic.openshop.online import DispatchTrace, Disturbances, follow
from cerebro_elastic.openshop.rearrangement import rearranged
from cerebro_elastic.openshop.rollouts import DispatchSettings
from cerebro_elastic.openshop.rules import Furthest, InOrder, Longest, Random

DECISIONS_PER_SECOND = 60_000
"""Decisions of dry runs for one of ``schedule``'s seconds: what a slow machine makes in it."""
MANY = 200_000
"""Units from which on ``auto`` goes through them once, and rehearses nothing."""
RANDOM_RUNS = 5
"""How many random schedules ``monte-carlo`` begins with."""


@dataclass(frozen=True, slots=True, eq=False)
class ScheduledUnits:
    """One entry for each unit, by start: what is done (``config``, ``epoch``, ``partition``,
    from 0), on which ``node``, from ``start`` to ``end`` (seconds)."""

    config: NDArray[np.int32]
    epoch: NDArray[np.int32]
    partition: NDArray[np.int32]
    node: NDArray[np.int32]
    start: Array
    end: Array

    def __len__(self) -> int:
        return len(self.config)


@dataclass(frozen=True, eq=False)
class Schedule:
    """When and where each unit is done, and how good that is.

    ``bound`` is the instance's lower bound, by the seconds that units really took where those are known.
    ``lost`` are the visits that an outage ended. ``source`` makes ``visits`` when they are first asked for:
    for millions of units they take much more memory than the schedule."""

    makespan: float
    bound: float
    source: Callable[[], ScheduledUnits]
    lost: tuple[ScheduledUnit, ...] = ()

    @cached_property
    def visits(self) -> ScheduledUnits:
        """Every unit's visit."""
        return self.source()

    @property
    def gap(self) -> float:
        """The optimality gap: how much longer than the lower bound, as a share of it."""
        return self.makespan / self.bound - 1 if self.bound else 0.0


def schedule(
    problem: Instance | ArrayLike,
    policy: str = "auto",
    seed: int = 0,
    seconds: float = 1.0,
    disturbances: Disturbances | None = None,
) -> Schedule:
    """Schedule ``problem`` (an ``Instance``, or the durations of one) by ``policy``, one of ``POLICIES``.

    ``seconds`` is how long better schedules may be looked for. It is turned into a number of decisions of dry
    runs, so that the schedule depends on the arguments alone; a fast machine needs less. ``disturbances`` are
    what the policy learns only as it happens. Raises ``ScheduleError`` if an argument is wrong, or if a
    partition is out of reach for good."""
    one_of(policy, tuple(POLICIES), "policy")
    seed, seconds = whole(seed, "seed", 0, LARGEST_SEED), number(seconds, "seconds", LONGEST_SEARCH)
    if not isinstance(disturbances, Disturbances | None):
        raise ScheduleError(f"disturbances is {disturbances!r}; give Disturbances(...), or leave it out")
    asked = problem if isinstance(problem, Instance) else instance(problem)
    return POLICIES[policy](_Request(asked, seed, seconds, disturbances or Disturbances()))


@dataclass(frozen=True, slots=True)
class _Request:
    instance: Instance
    seed: int
    seconds: float
    disturbances: Disturbances

    def followed(self, manners: Sequence[DispatchSettings], shared: bool, search: bool = False) -> Schedule:
        """The schedule of the best of ``manners``, or with ``search`` of others, too."""
        decisions = int(self.seconds * DECISIONS_PER_SECOND) if search else 0
        story = follow(self.instance, self.disturbances, manners, self.seed, decisions, shared)
        return _told(story, self.instance, self.disturbances)


def _random(request: _Request) -> Schedule:
    return request.followed([DispatchSettings(Random(request.seed))], shared=True)


def _longest_remaining(request: _Request) -> Schedule:
    return request.followed([DispatchSettings(Longest())], shared=True)


def _vector_rearrangement(request: _Request) -> Schedule:
    return request.followed([DispatchSettings(InOrder(rearranged(request.instance)))], shared=True)


def _monte_carlo(request: _Request) -> Schedule:
    chance = [DispatchSettings(Random(request.seed + k)) for k in range(RANDOM_RUNS)]
    return request.followed([DispatchSettings(Longest()), *chance], shared=True, search=True)


def _target(request: _Request) -> Schedule:
    return request.followed([DispatchSettings(Longest())], shared=False)


def _auto(request: _Request) -> Schedule:
    if request.disturbances.halving is not None:
        return request.followed([DispatchSettings(Furthest())], shared=False)
    if request.instance.units >= MANY and suits(request.instance) and request.disturbances.none:
        return _bulk(request)
    return request.followed(_cheap(request.instance), shared=False, search=True)


def _exact(request: _Request) -> Schedule:
    if not request.disturbances.none:
        raise ScheduleError("the policy exact plans what is known; give it no disturbances, or take auto")
    start = request.followed(_cheap(request.instance), shared=False, search=True)
    visits = exact(request.instance, start.source, request.seed, request.seconds)
    return _told(DispatchTrace(visits), request.instance, request.disturbances)


POLICIES: Mapping[str, Callable[[_Request], Schedule]] = {
    "auto": _auto,
    "exact": _exact,
    "longest-remaining": _longest_remaining,
    "monte-carlo": _monte_carlo,
    "random": _random,
    "target": _target,
    "vector-rearrangement": _vector_rearrangement,
}
"""By name, as in a recipe."""


def _cheap(problem: Instance) -> list[DispatchSettings]:
    return [DispatchSettings(Longest()), DispatchSettings(InOrder(rearranged(problem)))]


def _told(story: DispatchTrace, problem: Instance, disturbances: Disturbances) -> Schedule:
    if disturbances.durations is not None:
        problem = replace(problem, durations=numbers(disturbances.durations, "disturbances.durations"))
    if disturbances.halving is not None:
        problem = replace(problem, epochs=_trained(story, problem))
    visits = sorted(story.visits, key=lambda v: (v.start, v.node))
    return Schedule(
        makespan=max((v.end for v in visits), default=0.0),
        bound=lower_bound(problem),
        source=lambda: _visits(visits),
        lost=tuple(story.lost),
    )


def _trained(story: DispatchTrace, problem: Instance) -> NDArray[np.int64]:
    """``[C]``: the epochs that each config came to be trained for."""
    epochs = np.zeros(problem.configs, np.int64)
    for visit in story.visits:
        epochs[visit.config] = max(epochs[visit.config], visit.epoch + 1)
    return epochs


def _visits(visits: Sequence[ScheduledUnit]) -> ScheduledUnits:
    counts = np.array([(v.config, v.epoch, v.partition, v.node) for v in visits], np.int32).reshape(-1, 4)
    times = np.array([(v.start, v.end) for v in visits]).reshape(-1, 2)
    return ScheduledUnits(*counts.T, *times.T)


def _bulk(request: _Request) -> Schedule:
    order, makespan = bulk(request.instance)
    return Schedule(makespan, lower_bound(request.instance), lambda: _replayed(request.instance, order))


def _replayed(problem: Instance, order: NDArray[np.uint32]) -> ScheduledUnits:
    """Each unit starts as soon as its config and its node are free."""
    config = (order // problem.nodes).astype(np.int32)
    node = (order % problem.nodes).astype(np.int32)
    seconds = problem.durations[config, node]
    start = np.empty(len(order))
    config_free, node_free = [0.0] * problem.configs, [0.0] * problem.nodes
    for place, (i, n, length) in enumerate(zip(config, node, seconds, strict=True)):
        begin = max(config_free[i], node_free[n])
        start[place] = begin
        config_free[i] = node_free[n] = begin + length
    return ScheduledUnits(config, np.zeros(len(order), np.int32), node, node, start, start + seconds)
