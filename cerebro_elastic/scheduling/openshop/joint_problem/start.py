"""A first schedule of the joint problem: widths for the shortest horizon, and a dispatch by them.

Whenever devices are free, the longest remaining config takes its width on the most loaded node, as in
``openshop.dispatch``."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.scheduling.openshop.checks import Array
from cerebro_elastic.scheduling.openshop.joint_problem.exact import Unit

Widths = NDArray[np.int64]


def dispatched(seconds: Array, devices: Widths, bound: float) -> list[Unit]:
    """The units of a schedule, by their start; none takes less than ``bound`` seconds."""
    return _dispatch(seconds, devices, _widths(seconds, devices, _shortest(seconds, devices, bound)))


def _shortest(seconds: Array, devices: Widths, bound: float) -> float:
    """The least horizon that has widths, to a thousandth."""
    low, high = bound, max(float(seconds.min(axis=2).sum()), bound)
    while high - low > 1e-3 * low:
        middle = (low + high) / 2
        fits = _fits(seconds, devices, _widths(seconds, devices, middle), middle)
        low, high = (low, middle) if fits else (middle, high)
    return high


def _fits(seconds: Array, devices: Widths, widths: Widths, horizon: float) -> bool:
    chosen = _chosen(seconds, widths)
    load = (chosen * widths).sum(axis=0) / devices
    return bool(chosen.sum(axis=1).max() <= horizon * (1 + 1e-9) and load.max() <= horizon * (1 + 1e-9))


def _chosen(seconds: Array, widths: Widths) -> Array:
    return np.take_along_axis(seconds, widths[:, :, None] - 1, axis=2)[:, :, 0]


def _widths(seconds: Array, devices: Widths, horizon: float) -> Widths:
    """The thriftiest widths, then for each config that is too long the widening that costs least device time
    for each second saved, until the config fits."""
    counts = np.arange(1, seconds.shape[2] + 1)
    area = seconds * counts / devices[None, :, None]
    # Of equally thrifty widths the widest: shorter at no cost.
    thrifty = area <= area.min(axis=2, keepdims=True) * (1 + 1e-9)
    widths: Widths = (thrifty * counts).max(axis=2)
    for i, length in enumerate(_chosen(seconds, widths).sum(axis=1).tolist()):
        while length > horizon:
            change = _widening(seconds[i], widths[i], area[i])
            if change is None:
                break
            n, wider = change
            length += seconds[i, n, wider - 1] - seconds[i, n, widths[i, n] - 1]
            widths[i, n] = wider
    return widths


def _widening(seconds: Array, widths: Widths, area: Array) -> tuple[int, int] | None:
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


def _dispatch(seconds: Array, devices: Widths, widths: Widths) -> list[Unit]:
    """Each unit by its width, or by more devices if no other config wants them now."""
    chosen = _chosen(seconds, widths)
    area = chosen * widths / devices
    remaining, load = chosen.sum(axis=1).tolist(), area.sum(axis=0).tolist()
    configs, nodes = chosen.shape
    left = [set(range(nodes)) for _ in range(configs)]
    idle, free, now = set(range(configs)), devices.tolist(), 0.0
    times, wanted = seconds.tolist(), widths.tolist()
    units: list[Unit] = []
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
