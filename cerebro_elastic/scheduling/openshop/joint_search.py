"""Annealing of the joint problem: many schedules side by side, each step one array operation for all of them.

A schedule is the order of its units, each with a width; every unit starts as early as its config and its
node's devices allow. Only a change to a unit of the critical path (those that end when the next one starts,
back from the last to end) can make it shorter, so a step takes a random one of these and gives it the next
width or another place in the order. A longer schedule is accepted the more seldom, the colder it is
(Kirkpatrick et al. 1983). Now and then the worse half gives way to copies of the better half: that takes most
effort to where it pays.

Times are whole numbers of ticks. Their last bits are the place in the order of the unit that ends then: so
each start shows which unit it waited for, which gives the critical path."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.scheduling.openshop.checks import Array
from cerebro_elastic.scheduling.openshop.exact import JointUnit

Ints = NDArray[np.int64]

SCHEDULES = 256
"""How many are annealed side by side."""
HOT, COLD = 0.8, 0.01
"""Temperatures at the beginning and in the end, as shares of a unit's mean seconds."""
THOROUGH = 40
"""Steps for each unit without which it begins colder, lest the start be lost for nothing."""
WIDENING = 0.6
"""How often a step changes a width, where there is another."""
LEAST = 10
"""Fewer steps do not pay."""
SELECTION = 50
"""Steps after which the better half replaces the worse."""


class Annealing:
    """Columns are schedules. A *plan* has one row for each place in the order: the *option*, a unit with a
    width, that is there. The search begins with the units ``start``, by their start."""

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
        # With what a decoding begins: by config and column; by node, device and column, the first to be
        # free in front. Devices that the node does not have are never free, nor are those behind the last.
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
        """The units of the best schedule found in ``steps`` steps, in an order in which each is to start as
        early as it can; no better one is looked for once it takes ``bound`` seconds."""
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
        """When the last unit ends, with its place in the last bits; and for each place that of the unit for
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
            # The devices taken are those that are free first; then they are among the others by ``end``.
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
        # The next wider or narrower one; at either end there is but one.
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
