"""The shortest schedule of a small problem, by trying all that could be it: for ``plan_quality.py``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Placed(NamedTuple):
    """A unit in a schedule that is being built."""

    config: int
    node: int
    width: int
    start: float
    end: float


def shortest(seconds: NDArray[np.float64], devices: Sequence[int], known: float) -> float:
    """The least makespan, at most ``known``.

    ``seconds[c, n, g - 1]`` is what the unit of config ``c`` on node ``n`` takes on ``g`` of its devices.
    Units are placed in the order of their starts, each as early as it can: one of these schedules is the
    shortest.
    """
    configs, nodes, widths = seconds.shape
    cheapest = seconds.min(axis=2)
    work = (seconds * np.arange(1, widths + 1)).min(axis=2) / np.array(devices)
    best = known

    def bound(placed: list[Placed]) -> float:
        """No schedule that goes on from here ends before."""
        length = cheapest.sum(axis=1)
        load = work.sum(axis=0)
        for unit in placed:
            length[unit.config] += unit.end - unit.start - cheapest[unit.config, unit.node]
            used = (unit.end - unit.start) * unit.width / devices[unit.node]
            load[unit.node] += used - work[unit.config, unit.node]
        ends = max((unit.end for unit in placed), default=0.0)
        return float(max(ends, length.max(), load.max()))

    def place(placed: list[Placed], left: frozenset[tuple[int, int]]) -> None:
        nonlocal best
        if not left:
            best = min(best, max(unit.end for unit in placed))
            return
        since = placed[-1].start if placed else 0.0
        choices = [
            unit
            for config, node in left
            for unit in _ways(placed, seconds[config, node], config, node, devices[node])
        ]
        for unit in sorted(choices, key=lambda unit: unit.end):
            if unit.start >= since and bound([*placed, unit]) < best * (1 - 1e-9):
                place([*placed, unit], left - {(unit.config, unit.node)})

    place([], frozenset((config, node) for config in range(configs) for node in range(nodes)))
    return best


def _ways(
    placed: Sequence[Placed], seconds: NDArray[np.float64], config: int, node: int, devices: int
) -> Iterator[Placed]:
    """The unit by each width, as early as possible."""
    for width in range(1, devices + 1):
        takes = float(seconds[width - 1])
        for start in sorted({0.0, *(unit.end for unit in placed)}):
            beside = [unit for unit in placed if unit.start < start + takes and unit.end > start]
            if all(unit.config != config for unit in beside) and _fits(beside, node, width, devices, start):
                yield Placed(config, node, width, start, start + takes)
                break


def _fits(beside: Sequence[Placed], node: int, width: int, devices: int, start: float) -> bool:
    """Whether the node has so many devices to spare, at ``start`` and as other units begin."""
    there = [unit for unit in beside if unit.node == node]
    moments = {start, *(unit.start for unit in there if unit.start > start)}
    return all(
        sum(unit.width for unit in there if unit.start <= moment < unit.end) + width <= devices
        for moment in moments
    )
