"""The joint problem (thesis, section 4.3): how many devices each unit takes, and when each unit starts.

Each config visits each node once. On node ``n``, which has ``devices[n]`` devices, it may take ``g`` of them
and then needs ``seconds[i, n, g - 1]``; devices that it does not take are free for other configs. Two bounds
pull against each other: a config's length gets shorter with more devices, the devices' time gets scarcer
unless speed-up is linear.

If it is linear, all devices for every unit are best, and the problem is an open shop. Else a dispatch by
widths that keep every config and every node within the shortest horizon (``dispatched``) is annealed
(``Annealing``). Devices of a node are alike: a unit's devices follow from the starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from math import inf

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cerebro_elastic.extending.errors import ScheduleError
from cerebro_elastic.extending.planning import (
    LARGEST_SEED,
    LONGEST_SEARCH,
    Array,
    Instance,
    instance,
    left_shifted,
    lower_bound,
    number,
    numbers,
    one_of,
    whole,
)
from cerebro_planner.exact import UNITS, JointUnit, exact_joint
from cerebro_planner.planner import schedule

Ints = NDArray[np.int64]

POLICIES = ("auto", "exact")
"""The policies of ``joint``."""
MOST_DEVICES = 10_000
"""The most devices of a node."""
DECISIONS_PER_SECOND = 8_000_000
"""Units that the annealing starts in one of ``joint``'s seconds, if nodes have up to four devices: the number
for a slow machine."""
SCHEDULES = 256
"""How many are annealed side by side."""
HOT, COLD = 0.8, 0.01
"""Temperatures at the beginning and in the end, as shares of a unit's mean seconds."""
THOROUGH = 40
"""The least number of steps for each unit; with fewer the annealing begins colder, so as not to lose its
start."""
WIDENING = 0.6
"""How often a step changes a width, where another exists."""
LEAST = 10
"""Fewer steps do not pay."""
SELECTION = 50
"""Steps after which the better half replaces the worse."""


@dataclass(frozen=True, slots=True, eq=False)
class JointSchedule:
    """When each unit is done, and on how many devices."""

    width: Ints
    """``[C, N]``: the devices that the unit takes."""
    start: Array
    """``[C, N]``: when the unit starts, in seconds."""
    end: Array
    """``[C, N]``: when the unit ends, in seconds."""
    makespan: float
    """When the last unit ends, in seconds."""
    bound: float
    """A lower bound on the makespan, in seconds."""


def joint(
    seconds: ArrayLike, devices: ArrayLike, seed: int = 0, budget: float = 1.0, policy: str = "auto"
) -> JointSchedule:
    """Schedule units that may take several devices of their node.

    Args:
        seconds: ``[C, N, G]``: a unit's seconds by config, node and number of devices; infinite where it
            cannot be trained on that number.
        devices: ``[N]``: how many devices each node has.
        seed: For all that is random.
        budget: How long better schedules may be looked for, in seconds. ``auto`` turns it into a number of
            steps, so that the schedule depends on the arguments alone.
        policy: ``auto`` is the heuristic; ``exact`` is CP-SAT (see ``exact``) for ``budget`` seconds, from
            the heuristic's result of at most one second.

    Raises:
        ScheduleError: An argument is wrong.
    """
    one_of(policy, POLICIES, "policy")
    seed, budget = whole(seed, "seed", 0, LARGEST_SEED), number(budget, "budget", LONGEST_SEARCH)
    times, counts = _checked(seconds, devices)
    if policy == "exact" and times[:, :, 0].size > UNITS:
        raise ScheduleError(
            f"the policy exact is for up to {UNITS} units; these are {times[:, :, 0].size}: take auto"
        )
    start = min(budget, 1.0) if policy == "exact" else budget
    heuristic = _heuristic(times, counts, seed, start)
    if policy == "auto" or heuristic.makespan <= heuristic.bound * (1 + 1e-9):
        return heuristic
    return _improved(heuristic, times, counts, seed, budget)


def _heuristic(seconds: Array, devices: Ints, seed: int, budget: float) -> JointSchedule:
    bound = joint_bound(seconds, devices)
    shortest = instance(seconds.min(axis=2))
    linear = lower_bound(shortest) <= bound * (1 + 1e-9)
    starts = (
        dispatched(seconds, devices, _widths(seconds, devices, _shortest(seconds, devices, bound))),
        _one_by_one(seconds, shortest, budget if linear else 0.0),
    )
    best, units = min(
        ((_timed(seconds, devices, units, bound), units) for units in starts),
        key=lambda pair: pair[0].makespan,
    )
    # Of a step's array operations a dozen have one row for each schedule, and one a row for each device.
    cost = (12 + devices.max()) / (12 + 4)
    steps = int(budget * DECISIONS_PER_SECOND / (SCHEDULES * len(units) * cost))
    if best.makespan <= bound * (1 + 1e-9) or steps < LEAST:
        return best
    rng = np.random.default_rng(seed)
    annealed = Annealing(seconds, devices, units).best(bound, rng, steps)
    changed = _timed(seconds, devices, annealed, bound)
    return min(best, changed, key=lambda schedule: schedule.makespan)


def _one_by_one(seconds: Array, shortest: Instance, budget: float) -> list[JointUnit]:
    """Every unit on its shortest width, one at a time on each node: an open shop, and best if speed-up is
    linear."""
    visits, widths = schedule(shortest, seconds=budget).visits, seconds.argmin(axis=2) + 1
    return [
        (int(i), int(n), int(widths[i, n]), float(start))
        for i, n, start in zip(visits.config, visits.node, visits.start, strict=True)
    ]


def _improved(known: JointSchedule, seconds: Array, devices: Ints, seed: int, budget: float) -> JointSchedule:
    """The schedule that CP-SAT finds; at least as good as ``known``."""
    start = [(int(i), int(n), int(g), float(known.start[i, n])) for (i, n), g in np.ndenumerate(known.width)]
    units, proven = exact_joint(seconds, devices, start, known.makespan, seed, budget)
    bound = min(max(known.bound, proven), known.makespan)
    improved = _timed(seconds, devices, units, bound)
    return improved if improved.makespan < known.makespan else replace(known, bound=bound)


def _timed(seconds: Array, devices: Ints, units: Sequence[JointUnit], bound: float) -> JointSchedule:
    """The units in their order, each as early as its config and its node's devices allow."""
    width = np.zeros(seconds.shape[:2], np.int64)
    start, end = np.zeros((2, *seconds.shape[:2]))
    order = [(i, n, g, float(seconds[i, n, g - 1])) for i, n, g, _ in units]
    starts = left_shifted(order, [0.0] * len(seconds), [[0.0] * count for count in devices])
    for (i, n, g, length), begin in zip(order, starts, strict=True):
        width[i, n], start[i, n], end[i, n] = g, begin, begin + length
    return JointSchedule(width, start, end, float(end.max()), bound)


def joint_bound(seconds: Array, devices: Ints) -> float:
    """A lower bound: no config is shorter than on its best widths, no node faster than by its least
    device-seconds."""
    widths = np.arange(1, seconds.shape[2] + 1)
    length = seconds.min(axis=2).sum(axis=1).max()
    load = ((seconds * widths).min(axis=2).sum(axis=0) / devices).max()
    return float(max(length, load))


def _checked(seconds: ArrayLike, devices: ArrayLike) -> tuple[Array, Ints]:
    times, given = numbers(seconds, "seconds", infinite=True), numbers(devices, "devices")
    if times.ndim != 3 or 0 in times.shape or given.shape != times.shape[1:2]:
        raise ScheduleError(
            f"seconds has the shape {times.shape}, devices {given.shape}; they must be "
            "[configs, nodes, widths] and [nodes]"
        )
    if (given != np.round(given)).any() or (given < 1).any() or (given > MOST_DEVICES).any():
        raise ScheduleError(
            f"devices is {given.tolist()}; every node must have a whole number of at least 1, at most "
            f"{MOST_DEVICES}"
        )
    counts = given.astype(np.int64)
    # A gang wider than the node cannot be.
    times = np.where(np.arange(1, times.shape[2] + 1) <= counts[:, None], times, inf)
    for i, n in np.argwhere(np.isinf(times).all(axis=2)):
        raise ScheduleError(
            f"config {i} can be trained on no number of devices that node {n} has ({counts[n]}): give it a "
            f"finite seconds[{i}, {n}, g - 1] for a g of at most {counts[n]}"
        )
    return times, counts


def _shortest(seconds: Array, devices: Ints, bound: float) -> float:
    """The least horizon that has widths, to a thousandth."""
    low, high = bound, max(float(seconds.min(axis=2).sum()), bound)
    while high - low > 1e-3 * low:
        middle = (low + high) / 2
        fits = _fits(seconds, devices, _widths(seconds, devices, middle), middle)
        low, high = (low, middle) if fits else (middle, high)
    return high


def _fits(seconds: Array, devices: Ints, widths: Ints, horizon: float) -> bool:
    chosen = _chosen(seconds, widths)
    load = (chosen * widths).sum(axis=0) / devices
    return bool(chosen.sum(axis=1).max() <= horizon * (1 + 1e-9) and load.max() <= horizon * (1 + 1e-9))


def _chosen(seconds: Array, widths: Ints) -> Array:
    return np.take_along_axis(seconds, widths[:, :, None] - 1, axis=2)[:, :, 0]


def _widths(seconds: Array, devices: Ints, horizon: float) -> Ints:
    """The thriftiest widths, then for each config that is too long the widening that costs least device time
    for each second saved, until the config fits."""
    counts = np.arange(1, seconds.shape[2] + 1)
    area = seconds * counts / devices[None, :, None]
    # Of equally thrifty widths the widest: shorter at no cost.
    thrifty = area <= area.min(axis=2, keepdims=True) * (1 + 1e-9)
    widths: Ints = (thrifty * counts).max(axis=2)
    for i, length in enumerate(_chosen(seconds, widths).sum(axis=1).tolist()):
        while length > horizon:
            change = _widening(seconds[i], widths[i], area[i])
            if change is None:
                break
            n, wider = change
            length += seconds[i, n, wider - 1] - seconds[i, n, widths[i, n] - 1]
            widths[i, n] = wider
    return widths


def _widening(seconds: Array, widths: Ints, area: Array) -> tuple[int, int] | None:
    """By node, for one config."""
    best: tuple[float, int, int] | None = None
    for n, width in enumerate(widths):
        for wider in range(width + 1, seconds.shape[1] + 1):
            saved = seconds[n, width - 1] - seconds[n, wider - 1]
            if saved > 0:
                price = (area[n, wider - 1] - area[n, width - 1]) / saved
                if best is None or price < best[0]:
                    best = (price, n, wider)
    return None if best is None else best[1:]


def dispatched(seconds: Array, devices: Ints, widths: Ints) -> list[JointUnit]:
    """The units of a first schedule, by their start.

    Whenever devices are free, the longest remaining config takes its width on the most loaded node, as in
    ``dispatch``, or more devices if no other config wants them now.
    """
    chosen = _chosen(seconds, widths)
    area = chosen * widths / devices
    remaining, load = chosen.sum(axis=1).tolist(), area.sum(axis=0).tolist()
    configs, nodes = chosen.shape
    left = [set(range(nodes)) for _ in range(configs)]
    idle, free, now = set(range(configs)), devices.tolist(), 0.0
    times, wanted = seconds.tolist(), widths.tolist()
    units: list[JointUnit] = []
    events: list[tuple[float, int, int, int]] = []
    while True:
        for i in sorted(idle, key=lambda i: (-remaining[i], i)):
            for n in sorted(left[i], key=lambda n: (-load[n], n)):
                contested = any(n in left[k] for k in idle if k != i)
                g = _taken(times[i][n], wanted[i][n], free[n], contested)
                if not g:
                    continue
                idle.discard(i)
                left[i].discard(n)
                remaining[i] -= float(chosen[i, n])
                load[n] -= float(area[i, n])
                free[n] -= g
                units.append((i, n, g, now))
                heappush(events, (now + times[i][n][g - 1], i, n, g))
                break
        if not events:
            return units
        now = events[0][0]
        while events and events[0][0] == now:
            _, i, n, g = heappop(events)
            free[n] += g
            if left[i]:
                idle.add(i)


def _taken(seconds: list[float], wanted: int, free: int, contested: bool) -> int:
    """How many of the ``free`` devices the unit takes; 0: it waits."""
    if free < wanted:
        return 0
    return wanted if contested else seconds.index(min(seconds[:free])) + 1


class Annealing:
    """Many schedules side by side, each step one array operation for all of them.

    A schedule is the order of its units, each with a width; every unit starts as early as its config and its
    node's devices allow. Only a change to a unit of the critical path (those that end when the next one
    starts, back from the last to end) can make it shorter, so a step takes a random one of these and gives it
    the next width or another place in the order. A longer schedule is accepted the more seldom, the colder it
    is (Kirkpatrick et al. 1983). Now and then the worse half gives way to copies of the better half: that
    takes most effort to where it pays.

    Times are whole numbers of ticks. Their last bits are the place in the order of the unit that ends then:
    so each start shows which unit it waited for, which gives the critical path.

    Columns are schedules. A *plan* has one row for each place in the order: the *option*, a unit with a
    width, that is there. The search begins with the units ``start``, by their start.
    """

    def __init__(self, seconds: Array, devices: Ints, start: Sequence[JointUnit]) -> None:
        configs, nodes, widths = seconds.shape
        self._units = units = configs * nodes
        flat = seconds.reshape(units, widths)
        # Devices that do not make a unit shorter are not worth having.
        before = np.minimum.accumulate(np.insert(flat, 0, np.inf, axis=1), axis=1)[:, :-1]
        self._unit, self._wide = np.nonzero(flat < before)
        self._options = np.bincount(self._unit)
        self._first = np.cumsum(self._options) - self._options
        bits = units.bit_length()
        self._nobody = (1 << bits) - 1
        length = flat[self._unit, self._wide]
        self._tick = float(length[self._first].sum()) / 2 ** (60 - bits)
        self._ticks = np.round(length / self._tick).astype(np.int64) << bits
        self._bits, self._nodes = bits, nodes
        self._columns, self._places = np.arange(SCHEDULES), np.arange(units)[:, None]
        # A decoding's initial values: by config and column; by node, device and column, the first to be free
        # in front. Devices that the node does not have are never free, nor are those behind the last.
        self._configs = np.full(configs * SCHEDULES, self._nobody)
        most = int(devices.max())
        free = np.full((nodes, most + widths, SCHEDULES), 1 << 62)
        free[:, :most][np.arange(most) < devices[:, None]] = self._nobody
        self._free = free.ravel()
        self._device = np.arange(most)[:, None] * SCHEDULES
        # By option: where these have its config, its node's first device, and from there the last it takes.
        self._config = self._unit // nodes * SCHEDULES
        self._node = self._unit % nodes * ((most + widths) * SCHEDULES)
        self._last = self._wide * SCHEDULES
        self._plan = np.repeat([[self._option(*unit)] for unit in start], SCHEDULES, axis=1)

    def _option(self, config: int, node: int, width: int, _start: float) -> int:
        unit = config * self._nodes + node
        at = int(self._first[unit])
        wide = self._wide[at : at + self._options[unit]]
        return at + int(np.searchsorted(wide, width - 1, side="right")) - 1

    def best(self, bound: float, rng: np.random.Generator, steps: int) -> list[JointUnit]:
        """The units of the best schedule found in ``steps`` steps, in an order in which each starts as early
        as it can; the search ends once a schedule takes ``bound`` seconds."""
        plan = self._plan
        length, waited = self._decoded(plan)
        best, best_plan = length[0], plan[:, 0]
        enough = (int(bound * (1 + 1e-9) / self._tick) + 1) << self._bits
        hot = max(HOT * min(steps / (THOROUGH * self._units), 1.0), COLD)
        temperature = hot * float(self._ticks.mean())
        for step in range(1, steps + 1):
            if best < enough:
                break
            tried = self._changed(plan, self._critical(length, waited, rng), rng)
            ends, blockers = self._decoded(tried)
            accepted = ends <= length + temperature * rng.standard_exponential(SCHEDULES)
            plan, length = np.where(accepted, tried, plan), np.where(accepted, ends, length)
            waited = np.where(accepted, blockers, waited)
            if (least := ends.min()) < best:
                best, best_plan = least, tried[:, ends.argmin()]
            temperature *= (COLD / hot) ** (1 / steps)
            if step % SELECTION == 0:
                order = np.argsort(length, kind="stable")
                order[SCHEDULES // 2 :] = order[: SCHEDULES // 2]
                plan, length, waited = plan[:, order], length[order], waited[:, order]
        return [
            (int(unit) // self._nodes, int(unit) % self._nodes, int(wide) + 1, float(place))
            for place, (unit, wide) in enumerate(
                zip(self._unit[best_plan], self._wide[best_plan], strict=True)
            )
        ]

    def _decoded(self, plan: Ints) -> tuple[Ints, Ints]:
        """The end of the last unit, with its place in the last bits; and for each place that of the unit for
        which it waited."""
        ticks = self._ticks.take(plan) + (self._places - self._nobody)
        config = self._config.take(plan) + self._columns
        node = self._node.take(plan) + self._columns
        last = node + self._last.take(plan)
        configs, free = self._configs.copy(), self._free.copy()
        starts = np.empty_like(plan)
        behind = self._device + SCHEDULES
        for c, n, g, took, start in zip(config, node, last, ticks, starts, strict=True):
            np.maximum(configs.take(c), free.take(g), out=start)
            end = start | self._nobody
            end += took
            configs[c] = end
            # The first free devices are taken; then they are sorted among the others by ``end``.
            places = n + self._device
            later = free.take(g + behind)
            np.minimum(later, end, out=later)
            np.maximum(later, free.take(places), out=later)
            free[places] = later
        return configs.reshape(-1, SCHEDULES).max(axis=0), starts & self._nobody

    def _critical(self, length: Ints, waited: Ints, rng: np.random.Generator) -> Ints:
        """For each schedule a random place of its critical path."""
        at = length & self._nobody
        path, long = [at], np.ones(SCHEDULES)
        while True:
            before = waited[at, self._columns]
            more = before != self._nobody
            if not more.any():
                break
            at = np.where(more, before, at)
            path.append(at)
            long += more
        chosen: Ints = np.array(path)[(rng.random(SCHEDULES) * long).astype(int), self._columns]
        return chosen

    def _changed(self, plan: Ints, place: Ints, rng: np.random.Generator) -> Ints:
        """The plans with the unit at ``place`` at another place, or of another width."""
        old = plan[place, self._columns]
        unit = self._unit[old]
        widest = self._options[unit] - 1
        widen = (rng.random(SCHEDULES) < WIDENING) & (widest > 0)
        # The next wider or narrower one; at either end only one exists.
        other = np.abs(old - self._first[unit] + np.where(rng.random(SCHEDULES) < 0.5, 1, -1))
        other = self._first[unit] + widest - np.abs(widest - other)
        further = 1 + (rng.random(SCHEDULES) * (self._units - 1)).astype(int)
        to = np.where(widen, place, (place + further) % self._units)
        here = self._places
        # Those between the two places move up by one.
        shift = ((here >= place) & (here < to)).astype(int) - ((here > to) & (here <= place))
        changed: Ints = plan[here + shift, self._columns]
        changed[to, self._columns] = np.where(widen, other, old)
        return changed
