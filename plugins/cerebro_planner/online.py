"""A run as it happens: units take other seconds than expected, nodes go and come.

The dispatcher learns of each only when it has happened. Then, and at intervals, the rest of the run is
planned and rolled out again from the present state. A rule that is followed online costs little where a fixed
plan would cost much.

In successive halving the promoted configs are known only at the decision. Rungs are numbers of epochs. A
config at a rung rests there until it is promoted to the next. No config waits for a rung as a whole, unless
the rule does (Li et al. 2020, A system for massively parallel hyperparameter tuning, section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop
from math import inf

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cerebro_elastic.extending.errors import ScheduleError
from cerebro_elastic.extending.planning import (
    MOST_UNITS,
    Dispatch,
    DispatchState,
    Instance,
    Longest,
    ScheduledUnit,
    Seconds,
    floats,
    lower_bound,
    number,
    numbers,
    one_of,
    whole,
)
from cerebro_planner.rollouts import DispatchSettings, adopt, plan, rollout

RULES = ("each", "asynchronous", "synchronous")
"""The rules by which configs are promoted (see ``Rungs.rule``)."""
REPLANS = 60
"""How often a run with unit times that differ from the expected ones is planned again."""
REPLANS_WITH_REPLICAS = 5
"""The same with replicas, where each time also solves the linear program and anneals."""
TOLERANCE = 0.01
"""The share by which a unit's seconds may differ from the expected ones without counting as unexpected."""
STEADY = DispatchSettings(Longest(), horizon=1.0, guard=0.005)
"""The settings that are followed once units take other seconds than expected. Weights that were best in
rollouts are only so if all goes as in them; keeping a node free for the longest config helps whatever
happens."""


@dataclass(frozen=True, slots=True)
class Outage:
    """A node is away: it died, or joins late. Its unit at ``start`` is lost; its partitions are there again
    at ``end``. Outages of one node that overlap or touch are one."""

    node: int
    start: float
    """When the node goes, in seconds; 0 for a node that joins late."""
    end: float = inf
    """When the node is back, in seconds; infinite: never."""


@dataclass(frozen=True, slots=True)
class Rungs:
    """Of the configs that reach a rung, the best ``1 / reduction_factor`` are promoted to the next one."""

    rungs: Sequence[int]
    """Numbers of epochs in all, rising; the first is the instance's ``epochs``."""
    losses: ArrayLike
    """``[C]`` or ``[C, rungs]``: the losses that are seen when a config arrives; less is better."""
    reduction_factor: int = 2
    """One in this many configs is promoted."""
    rule: str = "each"
    """When a config is promoted.

    - ``each``: when it arrives, by its own loss, as if those of the others were known;
    - ``asynchronous``: once it is among the best of those at the rung (ASHA);
    - ``synchronous``: as soon as no later config can displace it.
    """


@dataclass(frozen=True, slots=True)
class Disturbances:
    """Events that a scheduler learns only as they happen."""

    durations: ArrayLike | None = None
    """The seconds that units really take, in the shape of the instance's; ``None``: the expected ones."""
    outages: Sequence[Outage] = ()
    """When nodes are away."""
    halving: Rungs | None = None
    """The configs that train on after the instance's epochs."""

    @property
    def none(self) -> bool:
        """Whether all is known beforehand."""
        return self.durations is None and not self.outages and self.halving is None


@dataclass(slots=True)
class DispatchTrace:
    visits: list[ScheduledUnit] = field(default_factory=list)
    """The units that were done, in the order of their starts."""
    lost: list[ScheduledUnit] = field(default_factory=list)
    """The units that were lost with their nodes; ``end`` is when they would have ended."""


class Ladder:
    """The progress of each config. Raises ``ScheduleError`` for impossible ``Rungs``."""

    def __init__(self, halving: Rungs, problem: Instance) -> None:
        if not isinstance(halving, Rungs):
            raise ScheduleError(f"disturbances.halving is {halving!r}; it must be Rungs(rungs, losses)")
        self._rungs = _rungs(halving, problem)
        self._losses = _losses(halving, problem)
        one_of(halving.rule, RULES, "rule")
        self._factor = whole(halving.reduction_factor, "reduction_factor", 2, MOST_UNITS)
        self._rule = halving.rule
        self._place = [0] * problem.configs
        self._arrived: list[list[int]] = [[] for _ in self._rungs]
        self._survivors = [list(range(problem.configs))]
        for rung in range(len(self._rungs) - 1):
            members = self._survivors[-1]
            self._survivors.append(self._best(members, rung)[: len(members) // self._factor])

    def arrive(self, config: int) -> list[tuple[int, int]]:
        """The config has reached its rung: the configs that are promoted now, with their numbers of
        epochs."""
        rung = self._place[config]
        self._arrived[rung].append(config)
        if rung + 1 == len(self._rungs):
            return []
        chosen = [i for i in self._chosen(rung, config) if self._place[i] == rung]
        for i in chosen:
            self._place[i] = rung + 1
        return [(i, self._rungs[rung + 1] - self._rungs[rung]) for i in chosen]

    def _chosen(self, rung: int, config: int) -> Sequence[int]:
        """The configs that are known to be promoted from the rung; some may have been before."""
        arrived = self._best(self._arrived[rung], rung)
        if self._rule == "asynchronous":
            return arrived[: len(arrived) // self._factor]
        survivors = self._survivors[rung + 1]
        if self._rule == "each":
            return [config] if config in survivors else []
        missing = len(self._survivors[rung]) - len(arrived)
        return arrived[: max(len(survivors) - missing, 0)]

    def _best(self, configs: Sequence[int], rung: int) -> list[int]:
        return sorted(configs, key=lambda i: (self._losses[i, rung], i))


def _rungs(halving: Rungs, problem: Instance) -> list[int]:
    given, most = floats(halving.rungs, "rungs"), MOST_UNITS // (problem.configs * problem.partitions)
    whole_numbers = given.ndim == 1 and given.size > 0 and ((given >= 1) & (given == np.round(given))).all()
    if not whole_numbers or (np.diff(given) <= 0).any():
        raise ScheduleError(
            f"rungs is {given.tolist()}; it must be whole numbers of at least 1, each above the last"
        )
    if given[-1] > most:
        raise ScheduleError(
            f"rungs is {given.tolist()}; {most} epochs of all configs are {MOST_UNITS} units: give fewer"
        )
    rungs = [int(rung) for rung in given]
    if (problem.epochs != rungs[0]).any():
        raise ScheduleError(
            f"epochs is {problem.epochs.tolist()}, but the first rung is at {rungs[0]}: give the instance "
            f"epochs={rungs[0]}, the epochs that every config gets for certain"
        )
    return rungs


def _losses(halving: Rungs, problem: Instance) -> NDArray[np.float64]:
    losses = floats(halving.losses, "losses")
    shape = (problem.configs, len(halving.rungs))
    if losses.shape not in (shape, shape[:1]) or np.isnan(losses).any():
        raise ScheduleError(
            f"losses has the shape {losses.shape}; it must be {shape[:1]} or {shape}, without NaN (a config "
            "that failed has an infinite loss)"
        )
    return np.broadcast_to(losses if losses.ndim == 2 else losses[:, None], shape)


class OnlineRun:
    """A dispatch of ``instance`` while the disturbances happen.

    Args:
        instance: The expected problem.
        disturbances: The events.
        candidates: The settings to try first.
        seed: For all that is random.
        decisions: The effort of all rollouts.
        shared: Whether every holder of a partition may take its units. If not, units have owners, which are
            planned again after each disturbance.
    """

    def __init__(
        self,
        instance: Instance,
        disturbances: Disturbances,
        candidates: Sequence[DispatchSettings],
        seed: int,
        decisions: int,
        shared: bool,
    ) -> None:
        self._instance = instance
        self._state = DispatchState.at_start(instance)
        self._candidates, self._seed, self._shared = candidates, seed, shared
        self._actual = _actual(instance, disturbances)
        self._changes = _changes(instance, disturbances)
        self._ladder = Ladder(disturbances.halving, instance) if disturbances.halving is not None else None
        noisy = self._actual is not None and not (shared and len(candidates) == 1)
        self._replans = (REPLANS_WITH_REPLICAS if instance.replicated else REPLANS) if noisy else 1
        self._decisions = decisions // (self._replans + len(self._changes) + 1)
        self._trace = DispatchTrace()
        self._bound = 0.0
        self._settings = candidates[0]

    def play(self) -> DispatchTrace:
        if self._shared:
            self._state.share()
        self._replan()
        expected = lower_bound(self._instance) if self._replans > 1 else 0.0
        pause = expected / self._replans or inf
        wake = pause
        while True:
            until = min(self._changes[0][0] if self._changes else inf, wake)
            if arrived := self._dispatch(until):
                self._promote(arrived)
                continue
            if self._state.finished:
                return self._trace
            if until == inf:
                raise self._stranded()
            while self._changes and self._changes[0][0] <= until:
                self._change()
            # Ever more seldom in a run that takes much longer than expected.
            wake = wake + max(pause, wake / self._replans) if until == wake else wake
            self._replan()

    def _dispatch(self, until: float) -> list[int]:
        """Continue up to ``until``, or until configs have reached their rungs; these are returned."""
        arrived: list[int] = []
        Dispatch(
            self._state,
            self._settings.rule,
            actual=self._actual,
            record=self._trace.visits.append,
            arrived=None if self._ladder is None else arrived,
        ).play(until)
        return arrived

    def _stranded(self) -> ScheduleError:
        stranded = sorted(
            {j for mask in self._state.undone for j in range(mask.bit_length()) if mask >> j & 1}
        )
        return ScheduleError(
            f"partitions {stranded} are held only by nodes that are away for good; give them "
            "replicas, a finite fetch, or let the node come back"
        )

    def _change(self) -> None:
        """The next node goes or comes back."""
        _, node, away = heappop(self._changes)
        if not away:
            self._state.regain(node)
            return
        lost = self._state.lose(node)
        if lost is not None:
            self._trace.visits.remove(lost)
            self._trace.lost.append(lost)

    def _promote(self, arrived: Sequence[int]) -> None:
        """Promote configs from their rungs at once."""
        assert self._ladder is not None
        promoted = [promotion for config in arrived for promotion in self._ladder.arrive(config)]
        for config, epochs in promoted:
            self._state.extend(config, epochs)
        if promoted and self._state.tables.replicated:
            self._replan()

    def _replan(self) -> None:
        state = self._state
        if state.finished:
            return
        if not self._shared:
            self._bound = plan(state, self._seed)
        if self._decisions and not self._shared and self._unexpected():
            self._settings = STEADY
        elif self._decisions or len(self._candidates) > 1:
            candidates = [self._settings, *self._candidates]
            self._settings = rollout(state, candidates, self._bound, self._seed, self._decisions).settings
        if not self._shared:
            adopt(state, self._settings, self._bound)

    def _unexpected(self) -> bool:
        """Whether a unit has turned out to take other seconds than expected."""
        actual, expected = self._actual, self._state.tables.seconds
        return actual is not None and any(
            abs(actual[v.config][v.partition][v.node] - expected[v.config][v.partition][v.node])
            > TOLERANCE * expected[v.config][v.partition][v.node]
            for v in self._trace.visits
            if v.end <= self._state.time
        )


def _actual(instance: Instance, disturbances: Disturbances) -> Seconds | None:
    if disturbances.durations is None:
        return None
    times = numbers(disturbances.durations, "disturbances.durations")
    if times.shape != instance.durations.shape:
        raise ScheduleError(
            f"disturbances.durations has the shape {times.shape}; it must be that of durations, "
            f"{instance.durations.shape}"
        )
    seconds: Seconds = replace(instance, durations=times).seconds().tolist()
    return seconds


def _changes(instance: Instance, disturbances: Disturbances) -> list[tuple[float, int, bool]]:
    """The times at which nodes go (True) or come back (False), as a heap."""
    changes = []
    for node, start, end in _merged(_checked(disturbances.outages, instance.nodes)):
        changes.append((start, node, True))
        if end < inf:
            changes.append((end, node, False))
    return sorted(changes)


def _checked(outages: Sequence[Outage], nodes: int) -> list[tuple[int, float, float]]:
    """Node, start and end of each outage."""
    if not isinstance(outages, Sequence) or not all(isinstance(outage, Outage) for outage in outages):
        raise ScheduleError(f"outages is {outages!r}; it must be a list of Outage(node, start, end)")
    spans = []
    for k, outage in enumerate(outages):
        place = f"disturbances.outages[{k}]"
        start = number(outage.start, f"{place}.start")
        end = number(outage.end, f"{place}.end", infinite=True)
        if end <= start:
            raise ScheduleError(f"{place} is {outage}; an outage ends after it starts")
        spans.append((whole(outage.node, f"{place}.node", 0, nodes - 1), start, end))
    return spans


def _merged(spans: Sequence[tuple[int, float, float]]) -> list[tuple[int, float, float]]:
    """The same times away, without overlaps."""
    merged: list[tuple[int, float, float]] = []
    for node, start, end in sorted(spans):
        if merged and merged[-1][0] == node and start <= merged[-1][2]:
            start, end = merged[-1][1], max(end, merged.pop()[2])
        merged.append((node, start, end))
    return merged
