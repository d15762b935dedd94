"""Learning curves: a panel for each metric, a line for each config."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cerebro_elastic.reporting.page.scale import Scale, Tick, number, wide
from cerebro_elastic.reporting.results import ConfigResult

WIDTH, HEIGHT = 480, 270
LEFT, RIGHT, TOP, BOTTOM = 56, 468, 12, 228
_DOTS = 400
"""Points in a panel up to which each is a dot of its own to point at."""

_STAGE = re.compile(r"(?:^|(?<=[_/.\- ]))(train|training|val|valid|validation|epoch)(?:[_/.\- ]|$)")
"""What of a metric's name says on which data it was measured."""


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


@dataclass(frozen=True, slots=True)
class Group:
    """The panels of what is measured in training and in validation, of one name but for that."""

    name: str
    panels: Sequence[Panel]


def groups(rows: Sequence[ConfigResult], metric: str) -> list[Group]:
    """The objective's first, and in each what validation measured before the rest."""
    names = {name for row in rows for values in row.curve for name in values}
    stems: dict[str, list[str]] = {}
    for name in sorted(names, key=lambda name: (name != metric, "train" in name, name)):
        stems.setdefault(_stem(name), []).append(name)
    first = _stem(metric)
    ordered = sorted(stems, key=lambda stem: (stem != first, stem))
    panels = [Group(stem, list(_panels(rows, stems[stem]))) for stem in ordered]
    return [group for group in panels if group.panels]


def trained(rows: Sequence[ConfigResult]) -> bool:
    """Whether anything was logged of training."""
    return any("train" in name for row in rows for values in row.curve for name in values)


def _stem(metric: str) -> str:
    """``loss`` of ``train_loss`` and ``val/loss``."""
    return _STAGE.sub("", metric).strip("_/.- ") or metric


def _panels(rows: Sequence[ConfigResult], metrics: Sequence[str]) -> Iterator[Panel]:
    """One for each metric that was ever finite; if their values overlap they have one scale, so that they
    compare."""
    curves = {metric: {row.config: list(_points(row, metric)) for row in rows} for metric in metrics}
    limits = {
        metric: _limits(finite)
        for metric, of_configs in curves.items()
        if (finite := sorted(v for curve in of_configs.values() for _, v in curve if math.isfinite(v)))
    }
    if not limits:
        return
    if max(low for low, _ in limits.values()) <= min(high for _, high in limits.values()):
        together = min(low for low, _ in limits.values()), max(high for _, high in limits.values())
        limits = dict.fromkeys(limits, together)
    epochs = max(row.behind + len(row.curve) for row in rows)
    for metric, (low, high) in limits.items():
        yield _panel(metric, curves[metric], epochs, low, high)


def _panel(
    metric: str, curves: Mapping[str, Sequence[tuple[int, float]]], epochs: int, low: float, high: float
) -> Panel:
    x = Scale(1, epochs, LEFT, RIGHT)
    y = Scale(low, high, BOTTOM, TOP, log=wide(low, high))
    dotted = sum(map(len, curves.values())) <= _DOTS
    return Panel(
        metric=metric,
        lines=[_line(name, curve, metric, x, y, dotted) for name, curve in curves.items() if curve],
        across=[tick for tick in x.ticks() if "." not in tick.text],
        up=y.ticks(),
        log=y.log,
        cut=any(v < low or v > high for c in curves.values() for _, v in c if math.isfinite(v)),
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
