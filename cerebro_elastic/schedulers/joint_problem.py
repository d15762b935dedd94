"""The joint problem (thesis, section 4.3): how many devices each unit gets, together with their order.

Each config visits each node once. On node ``n``, which has ``devices[n]`` devices, it may take ``g`` of them
and then needs ``seconds[i, n, g - 1]``; devices that it does not take are free for other configs. Two bounds
pull against each other: a config's length gets shorter with more devices, the devices' time gets scarcer
unless speed-up is linear.

The heuristic finds the shortest horizon for which widths exist that keep every config and every node within
it, then dispatches as in ``shop``: whenever devices are free, the longest remaining config takes its width.
Widths and order are tried with other weights and horizons, and the best is kept. Devices of a node are alike:
which of them a unit gets follows from the starts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from math import inf

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cerebro_elastic.errors import ScheduleError, did_you_mean
from cerebro_elastic.schedulers.bounds import lower_bound
from cerebro_elastic.schedulers.exact import UNITS
from cerebro_elastic.schedulers.instances import Array, instance, numbers
from cerebro_elastic.schedulers.joint_exact import Unit, exact_joint
from cerebro_elastic.schedulers.scheduling import schedule

POLICIES = ("auto", "exact")
DECISIONS_PER_SECOND = 80_000
CHANGES = 0.65
"""How often the best so far is changed, instead of beginning afresh."""
SPREADS = (0.0, 0.05, 0.2, 0.5)
PATIENCE = (1.0, 1.0, 1.3, 1.7, 2.5)
STRETCHES = (1.0, 1.0, 1.01, 1.03, 1.06, 1.1, 1.2)
"""Horizons tried for the widths, as multiples of the shortest."""


@dataclass(frozen=True, slots=True, eq=False)
class JointSchedule:
    """``width`` (devices), ``start`` and ``end`` (seconds) of each unit, all ``[C, N]``; the makespan, and a
    lower bound."""

    width: NDArray[np.int64]
    start: Array
    end: Array
    makespan: float
    bound: float


def joint(
    seconds: ArrayLike, devices: ArrayLike, seed: int = 0, budget: float = 1.0, policy: str = "auto"
) -> JointSchedule:
    """Widths and order for ``seconds`` (``[C, N, G]``, infinite where so many devices will not do) on nodes
    of so many ``devices`` (``[N]``). ``policy`` is one of ``POLICIES``: ``auto`` is the heuristic, with a
    ``budget`` of seconds that is turned into a number of decisions; ``exact`` is CP-SAT (``joint_exact``)
    for ``budget`` seconds, from what the heuristic found in at most one. Raises ``ScheduleError``."""
    if policy not in POLICIES:
        raise ScheduleError(f"there is no policy {policy!r}; {did_you_mean(policy, POLICIES)}")
    if not 0 <= budget < inf:
        raise ScheduleError(f"budget is {budget}; it must be a finite number of seconds of at least 0")
    times, counts = _checked(seconds, devices)
    if policy == "exact" and times[:, :, 0].size > UNITS:
        raise ScheduleError(
            f"the policy exact is for up to {UNITS} units; these are {times[:, :, 0].size}: take auto"
        )
    start = min(budget, 1.0) if policy == "exact" else budget
    found = _Joint(times, counts).best(random.Random(seed), int(start * DECISIONS_PER_SECOND))
    if policy == "auto" or found.makespan <= found.bound * (1 + 1e-9):
        return found
    return _improved(found, times, counts, seed, budget)


def _improved(
    found: JointSchedule, seconds: Array, devices: NDArray[np.int64], seed: int, budget: float
) -> JointSchedule:
    """By CP-SAT; at least as good."""
    known = [(int(i), int(n), int(g), float(found.start[i, n])) for (i, n), g in np.ndenumerate(found.width)]
    units, proven = exact_joint(seconds, devices, known, found.makespan, seed, budget)
    bound = min(max(found.bound, proven), found.makespan)
    shifted = _left_shifted(seconds, devices, units, bound)
    return shifted if shifted.makespan < found.makespan else replace(found, bound=bound)


def _left_shifted(
    seconds: Array, devices: NDArray[np.int64], units: Sequence[Unit], bound: float
) -> JointSchedule:
    """The units in their order, each as early as its config and its node's devices allow."""
    width = np.zeros(seconds.shape[:2], np.int64)
    start, end = np.zeros((2, *seconds.shape[:2]))
    configs, free = [0.0] * len(seconds), [[0.0] * count for count in devices]
    for i, n, g, _ in units:
        width[i, n], start[i, n] = g, max(configs[i], free[n][g - 1])
        end[i, n] = configs[i] = start[i, n] + seconds[i, n, g - 1]
        free[n] = sorted([*free[n][g:], *[configs[i]] * g])
    return JointSchedule(width, start, end, float(end.max()), bound)


def joint_bound(seconds: Array, devices: NDArray[np.int64]) -> float:
    """No config is shorter than on its best widths, no node faster than at its least device-seconds."""
    widths = np.arange(1, seconds.shape[2] + 1)
    length = seconds.min(axis=2).sum(axis=1).max()
    load = ((seconds * widths).min(axis=2).sum(axis=0) / devices).max()
    return float(max(length, load))


def _checked(seconds: ArrayLike, devices: ArrayLike) -> tuple[Array, NDArray[np.int64]]:
    times, given = numbers(seconds, "seconds", infinite=True), numbers(devices, "devices")
    if times.ndim != 3 or 0 in times.shape or given.shape != times.shape[1:2]:
        raise ScheduleError(
            f"seconds has the shape {times.shape}, devices {given.shape}; they must be "
            "[configs, nodes, widths] and [nodes]"
        )
    if (given != np.round(given)).any() or (given < 1).any():
        raise ScheduleError(f"devices is {given.tolist()}; every node must have a whole number of at least 1")
    counts = given.astype(np.int64)
    # A gang wider than the node cannot be.
    times = np.where(np.arange(1, times.shape[2] + 1) <= counts[:, None], times, inf)
    for i, n in np.argwhere(np.isinf(times).all(axis=2)):
        raise ScheduleError(
            f"config {i} can be trained on no number of devices that node {n} has ({counts[n]}): give it a "
            f"finite seconds[{i}, {n}, g - 1] for a g of at most {counts[n]}"
        )
    return times, counts


class _Joint:
    def __init__(self, seconds: Array, devices: NDArray[np.int64]) -> None:
        self._array, self._devices = seconds, devices
        self._seconds: list[list[list[float]]] = seconds.tolist()
        self._configs, self._nodes = seconds.shape[:2]
        self._bound = joint_bound(seconds, devices)

    def best(self, rng: random.Random, decisions: int) -> JointSchedule:
        """The best of dispatches with widths for several horizons, and with changes to the best so far."""
        shortest = self._shortest()
        even = [1.0] * (self._configs + self._nodes)
        best = self._dispatch(self._widths(shortest), even, 1.0, True, inf)
        assert best is not None
        whole = self._one_by_one(decisions)
        best = min(best, whole, key=lambda found: found.makespan)
        weights = even
        while decisions > 0 and best.makespan > self._bound * (1 + 1e-9):
            decisions -= self._configs * self._nodes
            if rng.random() < CHANGES:
                widths, base = self._changed(best.width, rng), weights
            else:
                widths, base = self._widths(shortest * rng.choice(STRETCHES)), even
            spread = rng.choice(SPREADS)
            tried = [w * (1 + spread * rng.gauss(0, 1)) for w in base]
            # As good as the best is taken, too: it leads away from where nothing gets better.
            found = self._dispatch(
                widths, tried, rng.choice(PATIENCE), rng.random() < 0.5, best.makespan * (1 + 1e-9)
            )
            if found is not None:
                best, weights = found, tried
        return best

    def _one_by_one(self, decisions: int) -> JointSchedule:
        """Every unit on its shortest width, one at a time on each node: an open shop, and optimal if speed-up
        is linear."""
        shortest = instance(self._array.min(axis=2))
        linear = lower_bound(shortest) <= self._bound * (1 + 1e-9)
        share = decisions / DECISIONS_PER_SECOND * (1.0 if linear else 0.25)
        plan = schedule(shortest, seconds=share)
        start, end = np.zeros((2, self._configs, self._nodes))
        start[plan.visits.config, plan.visits.node] = plan.visits.start
        end[plan.visits.config, plan.visits.node] = plan.visits.end
        return JointSchedule(self._array.argmin(axis=2) + 1, start, end, plan.makespan, self._bound)

    def _changed(self, widths: NDArray[np.int64], rng: random.Random) -> NDArray[np.int64]:
        """One to three units with another width."""
        changed = widths.copy()
        for _ in range(rng.randint(1, 3)):
            i, n = rng.randrange(self._configs), rng.randrange(self._nodes)
            changed[i, n] = rng.choice(
                [g for g in range(1, self._devices[n] + 1) if self._seconds[i][n][g - 1] < inf]
            )
        return changed

    def _shortest(self) -> float:
        """The least horizon that has widths, to a thousandth."""
        low, high = self._bound, max(float(self._array.min(axis=2).sum()), self._bound)
        while high - low > 1e-3 * low:
            middle = (low + high) / 2
            low, high = (low, middle) if self._fits(self._widths(middle), middle) else (middle, high)
        return high

    def _fits(self, widths: NDArray[np.int64], horizon: float) -> bool:
        chosen = np.take_along_axis(self._array, widths[:, :, None] - 1, axis=2)[:, :, 0]
        load = (chosen * widths).sum(axis=0) / self._devices
        return bool(chosen.sum(axis=1).max() <= horizon * (1 + 1e-9) and load.max() <= horizon * (1 + 1e-9))

    def _widths(self, horizon: float) -> NDArray[np.int64]:
        """The thriftiest widths, then for each config that is too long the widening that costs least device
        time for each second saved, until the config fits."""
        counts = np.arange(1, self._array.shape[2] + 1)
        area = self._array * counts / self._devices[None, :, None]
        # Of equally thrifty widths the widest: shorter at no cost.
        thrifty = area <= area.min(axis=2, keepdims=True) * (1 + 1e-9)
        widths: NDArray[np.int64] = (thrifty * counts).max(axis=2)
        for i in range(self._configs):
            length = sum(self._seconds[i][n][widths[i, n] - 1] for n in range(self._nodes))
            while length > horizon:
                change = self._widening(i, widths[i], area[i])
                if change is None:
                    break
                n, wider = change
                length += self._seconds[i][n][wider - 1] - self._seconds[i][n][widths[i, n] - 1]
                widths[i, n] = wider
        return widths

    def _widening(self, i: int, widths: NDArray[np.int64], area: Array) -> tuple[int, int] | None:
        best: tuple[float, int, int] | None = None
        for n, width in enumerate(widths):
            for wider in range(width + 1, self._devices[n] + 1):
                saved = self._seconds[i][n][width - 1] - self._seconds[i][n][wider - 1]
                if saved > 0 and saved < inf:
                    price = (area[n, wider - 1] - area[n, width - 1]) / saved
                    if best is None or price < best[0]:
                        best = (price, n, wider)
        return None if best is None else best[1:]

    def _dispatch(
        self, widths: NDArray[np.int64], weights: list[float], patience: float, widen: bool, cutoff: float
    ) -> JointSchedule | None:
        """A schedule by these widths, and weights on configs, then nodes; None if it would not end before
        ``cutoff``. A unit takes fewer devices than its width if that makes it at most ``patience`` times as
        long, and more (``widen``) if nobody else wants them now."""
        seconds, wanted = self._seconds, widths.tolist()
        free = self._devices.tolist()
        left = [set(range(self._nodes)) for _ in range(self._configs)]
        rest = [sum(seconds[i][n][wanted[i][n] - 1] for n in left[i]) for i in range(self._configs)]
        load = [
            sum(seconds[i][n][wanted[i][n] - 1] * wanted[i][n] for i in range(self._configs)) / free[n]
            for n in range(self._nodes)
        ]
        idle, now = set(range(self._configs)), 0.0
        width = np.zeros((self._configs, self._nodes), np.int64)
        start = np.zeros((self._configs, self._nodes))
        end = np.zeros((self._configs, self._nodes))
        events: list[tuple[float, int, int]] = []
        while True:
            for i in sorted(idle, key=lambda i: -rest[i] * weights[i]):
                for n in sorted(left[i], key=lambda n: -load[n] * weights[self._configs + n]):
                    others = not widen or any(n in left[k] for k in idle if k != i)
                    g = self._taken(seconds[i][n], wanted[i][n], free[n], patience, others)
                    if not g:
                        continue
                    idle.discard(i)
                    left[i].discard(n)
                    rest[i] -= seconds[i][n][wanted[i][n] - 1]
                    load[n] -= seconds[i][n][wanted[i][n] - 1] * wanted[i][n] / self._devices[n]
                    free[n] -= g
                    width[i, n], start[i, n], end[i, n] = g, now, now + seconds[i][n][g - 1]
                    if end[i, n] >= cutoff:
                        return None
                    heappush(events, (float(end[i, n]), i, n))
                    break
            if not events:
                break
            now = events[0][0]
            while events and events[0][0] == now:
                _, i, n = heappop(events)
                free[n] += int(width[i, n])
                if left[i]:
                    idle.add(i)
        return JointSchedule(width, start, end, now, self._bound)

    @staticmethod
    def _taken(seconds: list[float], wanted: int, free: int, patience: float, others: bool) -> int:
        """How many of the ``free`` devices the unit takes; 0: it waits."""
        most = free if not others or free < wanted else wanted
        if not most:
            return 0
        g = min(range(1, most + 1), key=lambda g: seconds[g - 1])
        return g if seconds[g - 1] <= patience * seconds[wanted - 1] else 0
