"""Learning curves: a panel for each metric, a line for each config."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cerebro_elastic.report.page.scale import Scale, Tick, number, wide
from cerebro_elastic.report.results import ConfigResult

WIDTH, HEIGHT = 480, 270
LEFT, RIGHT, TOP, BOTTOM = 56, 468, 12, 228
_DOTS = 400
"""Points in a panel up to which each is a dot of its own to point at."""


@dataclass(frozen=True, slots=True)
class Dot:
    """A config's value at the end of an epoch."""

    x: float
    y: float
    tip: str


@dataclass(frozen=True, slots=True)
class Line:
    """A config's curve; ``parts`` are the stretches between values that are not finite."""

    config: str
    parts: Sequence[str]
    dots: Sequence[Dot]


@dataclass(frozen=True, slots=True)
class Panel:
    """A metric over epochs. ``cut`` says that outliers lie at the border."""

    metric: str
    lines: Sequence[Line]
    across: Sequence[Tick]
    up: Sequence[Tick]
    log: bool
    cut: bool


def panels(rows: Sequence[ConfigResult], metric: str) -> list[Panel]:
    """The objective's panel first, then the other metrics'."""
    names = {name for row in rows for values in row.curve for name in values}
    ordered = sorted(names, key=lambda name: (name != metric, name))
    return [panel for name in ordered if (panel := _panel(rows, name)) is not None]


def _panel(rows: Sequence[ConfigResult], metric: str) -> Panel | None:
    """Nothing if the metric was never finite."""
    curves = {row.config: list(_points(row, metric)) for row in rows}
    finite = sorted(value for curve in curves.values() for _, value in curve if math.isfinite(value))
    if not finite:
        return None
    epochs = max(row.behind + len(row.curve) for row in rows)
    low, high = _limits(finite)
    x = Scale(1, epochs, LEFT, RIGHT)
    y = Scale(low, high, BOTTOM, TOP, log=wide(low, high))
    dotted = sum(map(len, curves.values())) <= _DOTS
    return Panel(
        metric=metric,
        lines=[_line(name, curve, metric, x, y, dotted) for name, curve in curves.items() if curve],
        across=[tick for tick in x.ticks() if "." not in tick.text],
        up=y.ticks(),
        log=y.log,
        cut=finite[0] < low or finite[-1] > high,
    )


def _points(row: ConfigResult, metric: str) -> Iterator[tuple[int, float]]:
    """Epochs from 1, with the metric's value, where it was logged."""
    for epoch, values in enumerate(row.curve, start=row.behind + 1):
        if metric in values:
            yield epoch, values[metric]


def _limits(ordered: Sequence[float]) -> tuple[float, float]:
    """All values, but for outliers that would press all the others into one line."""
    low, high = ordered[len(ordered) // 20], ordered[-1 - len(ordered) // 20]
    reach = 3 * (high - low) or math.inf
    return max(ordered[0], low - reach), min(ordered[-1], high + reach)


def _line(
    config: str, curve: Sequence[tuple[int, float]], metric: str, x: Scale, y: Scale, dotted: bool
) -> Line:
    parts: list[list[str]] = [[]]
    dots = []
    for epoch, value in curve:
        if not math.isfinite(value):
            parts.append([])
            continue
        parts[-1].append(f"{x(epoch):.1f},{y(value):.1f}")
        if dotted or len(curve) == 1:
            dots.append(Dot(x(epoch), y(value), f"{config}, epoch {epoch}: {metric} {number(value)}"))
    return Line(config, [" ".join(part) for part in parts if len(part) > 1], dots)
