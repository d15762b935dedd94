"""From an instance to a schedule: the public function ``schedule``, and its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cerebro_elastic.extending.errors import ScheduleError
from cerebro_elastic.extending.planning import (
    LARGEST_SEED,
    LONGEST_SEARCH,
    Array,
    Furthest,
    InOrder,
    Instance,
    Longest,
    Random,
    Rule,
    ScheduledUnit,
    instance,
    left_shifted,
    lower_bound,
    number,
    numbers,
    one_of,
    rearranged,
    whole,
)
from cerebro_planner.bulk import Bulk, suits
from cerebro_planner.exact import exact
from cerebro_planner.online import DispatchTrace, Disturbances, OnlineRun
from cerebro_planner.rollouts import DispatchSettings

DECISIONS_PER_SECOND = 60_000
"""Decisions of rollouts for one of ``schedule``'s seconds: as many as a slow machine makes in it."""
MANY = 200_000
"""From this many units on, ``auto`` goes through them once, without rollouts."""
RANDOM_RUNS = 5
"""How many random schedules ``monte-carlo`` begins with."""


@dataclass(frozen=True, slots=True, eq=False)
class ScheduledUnits:
    """Units as arrays, with one entry for each unit, in the order of their starts. Numbers begin at 0, times
    are seconds."""

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
    """When and where each unit is done, and how good that is."""

    makespan: float
    """When the last unit ends, in seconds."""
    bound: float
    """The instance's lower bound in seconds, by the seconds that units really took where those are known."""
    source: Callable[[], ScheduledUnits]
    """Makes ``visits`` on demand: for millions of units they take much more memory than the schedule."""
    lost: tuple[ScheduledUnit, ...] = ()
    """The units that an outage ended."""

    @cached_property
    def visits(self) -> ScheduledUnits:
        """Where and when each unit is done."""
        return self.source()

    @property
    def gap(self) -> float:
        """The optimality gap: by how much the makespan exceeds the lower bound, as a share of the bound."""
        return self.makespan / self.bound - 1 if self.bound else 0.0


def schedule(
    problem: Instance | ArrayLike,
    policy: str = "auto",
    seed: int = 0,
    seconds: float = 1.0,
    disturbances: Disturbances | None = None,
) -> Schedule:
    """Schedule a problem.

    Args:
        problem: An ``Instance``, or the durations of one.
        policy: One of ``POLICIES``.
        seed: For all that is random.
        seconds: How long better schedules may be looked for. It is turned into a number of decisions, so that
            the schedule depends on the arguments alone; a fast machine needs less time.
        disturbances: Events that the policy learns only as they happen.

    Raises:
        ScheduleError: An argument is wrong, or a partition is out of reach for good.
    """
    one_of(policy, tuple(POLICIES), "policy")
    seed, seconds = whole(seed, "seed", 0, LARGEST_SEED), number(seconds, "seconds", LONGEST_SEARCH)
    if not isinstance(disturbances, Disturbances | None):
        raise ScheduleError(f"disturbances is {disturbances!r}; give Disturbances(...), or leave it out")
    checked = problem if isinstance(problem, Instance) else instance(problem)
    return POLICIES[policy](_Request(checked, seed, seconds, disturbances or Disturbances()))


@dataclass(frozen=True, slots=True)
class _Request:
    instance: Instance
    seed: int
    seconds: float
    disturbances: Disturbances

    def schedule(self, rules: Sequence[Rule], shared: bool, search: bool = False) -> Schedule:
        """The schedule of the best of ``rules``, or with ``search`` of other settings, too."""
        return _schedule(self.trace(rules, shared, search), self.instance, self.disturbances)

    def trace(self, rules: Sequence[Rule], shared: bool, search: bool = False) -> DispatchTrace:
        """The schedule by these rules."""
        candidates = [DispatchSettings(rule) for rule in rules]
        decisions = int(self.seconds * DECISIONS_PER_SECOND) if search else 0
        return OnlineRun(self.instance, self.disturbances, candidates, self.seed, decisions, shared).play()


def _auto(request: _Request) -> Schedule:
    if request.disturbances.halving is not None:
        return request.schedule([Furthest()], shared=False)
    if request.instance.units >= MANY and suits(request.instance) and request.disturbances.none:
        return _bulk(request)
    return request.schedule(_cheap(request.instance), shared=False, search=True)


def _exact(request: _Request) -> Schedule:
    if not request.disturbances.none:
        raise ScheduleError("the policy exact plans known events only; give it no disturbances, or take auto")
    start = request.trace(_cheap(request.instance), shared=False, search=True)
    visits = exact(request.instance, _by_start(start), request.seed, request.seconds)
    return _schedule(DispatchTrace(list(visits)), request.instance, request.disturbances)


POLICIES: Mapping[str, Callable[[_Request], Schedule]] = {
    "auto": _auto,
    "exact": _exact,
    "longest-remaining": lambda asked: asked.schedule([Longest()], shared=True),
    "monte-carlo": lambda asked: asked.schedule(
        [Longest(), *(Random(asked.seed + k) for k in range(RANDOM_RUNS))], shared=True, search=True
    ),
    "random": lambda asked: asked.schedule([Random(asked.seed)], shared=True),
    "target": lambda asked: asked.schedule([Longest()], shared=False),
    "vector-rearrangement": lambda asked: asked.schedule([InOrder(rearranged(asked.instance))], shared=True),
}
"""By name, as in a recipe."""


def _cheap(problem: Instance) -> list[Rule]:
    return [Longest(), InOrder(rearranged(problem))]


def _schedule(trace: DispatchTrace, problem: Instance, disturbances: Disturbances) -> Schedule:
    if disturbances.durations is not None:
        problem = replace(problem, durations=numbers(disturbances.durations, "disturbances.durations"))
    if disturbances.halving is not None:
        problem = replace(problem, epochs=_trained(trace, problem))
    visits = _by_start(trace)
    return Schedule(
        makespan=max((v.end for v in visits), default=0.0),
        bound=lower_bound(problem),
        source=lambda: _as_arrays(visits),
        lost=tuple(trace.lost),
    )


def _by_start(trace: DispatchTrace) -> list[ScheduledUnit]:
    return sorted(trace.visits, key=lambda v: (v.start, v.node))


def _trained(trace: DispatchTrace, problem: Instance) -> NDArray[np.int64]:
    """``[C]``: the epochs that each config was trained for in the end."""
    epochs = np.zeros(problem.configs, np.int64)
    for visit in trace.visits:
        epochs[visit.config] = max(epochs[visit.config], visit.epoch + 1)
    return epochs


def _as_arrays(visits: Sequence[ScheduledUnit]) -> ScheduledUnits:
    counts = np.array([(v.config, v.epoch, v.partition, v.node) for v in visits], np.int32).reshape(-1, 4)
    times = np.array([(v.start, v.end) for v in visits]).reshape(-1, 2)
    return ScheduledUnits(*counts.T, *times.T)


def _bulk(request: _Request) -> Schedule:
    order, makespan = Bulk(request.instance).play()
    return Schedule(makespan, lower_bound(request.instance), lambda: _replayed(request.instance, order))


def _replayed(problem: Instance, order: NDArray[np.uint32]) -> ScheduledUnits:
    """The units in their order, each as early as its config and its node allow."""
    config = (order // problem.nodes).astype(np.int32)
    node = (order % problem.nodes).astype(np.int32)
    seconds = problem.durations[config, node]
    # Views of memory give Python's own numbers one by one: lists of them would be many times as large.
    units = zip(config.data, node.data, repeat(1), seconds.data, strict=False)
    starts = left_shifted(units, [0.0] * problem.configs, [[0.0]] * problem.nodes)
    start = np.fromiter(starts, dtype=np.float64, count=len(order))
    return ScheduledUnits(config, np.zeros(len(order), np.int32), node, node, start, start + seconds)
