"""Learning curves: a panel for each metric, a line for each config."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cerebro_elastic.reporting.page.scale import Scale, Tick, number, wide
from cerebro_elastic.reporting.results import ConfigResult, logged_metrics

WIDTH, HEIGHT = 480, 270
LEFT, RIGHT, TOP, BOTTOM = 56, 468, 12, 228
_DOTS = 400
"""The most points of a panel whose points are dots to point at."""

_STAGE = re.compile(r"(?:^|(?<=[_/.\- ]))(train|training|val|valid|validation|epoch)(?:[_/.\- ]|$)")
"""The part of a metric's name that names the data on which it was measured."""


@dataclass(frozen=True, slots=True)
class Dot:
    """A config's value at the end of an epoch."""

    x: float
    """Pixels from the left."""
    y: float
    """Pixels from the top."""
    tip: str
    """The text that appears when the mouse points at it."""


@dataclass(frozen=True, slots=True)
class Line:
    """A config's curve."""

    config: str
    parts: Sequence[str]
    """The stretches between values that are not finite, as points of an SVG polyline."""
    dots: Sequence[Dot]
    """The values to point at; none in a panel with many values."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A metric over epochs."""

    metric: str
    lines: Sequence[Line]
    """The curves of the configs."""
    across: Sequence[Tick]
    """The marks of the horizontal axis."""
    up: Sequence[Tick]
    """The marks of the vertical axis."""
    log: bool
    """Whether the vertical axis is logarithmic."""
    cut: bool
    """Whether outliers are drawn at the border."""


@dataclass(frozen=True, slots=True)
class Group:
    """The panels of one quantity, measured in training and in validation."""

    name: str
    """The part of the name that the metrics share."""
    panels: Sequence[Panel]
    """A panel for each metric."""


def groups(rows: Sequence[ConfigResult], metric: str) -> list[Group]:
    """The groups, the one of the objective first. In each, metrics of validation come first."""
    stems: dict[str, list[str]] = {}
    for name in sorted(logged_metrics(rows), key=lambda name: (name != metric, "train" in name, name)):
        stems.setdefault(_stem(name), []).append(name)
    first = _stem(metric)
    ordered = sorted(stems, key=lambda stem: (stem != first, stem))
    panels = [Group(stem, list(_panels(rows, stems[stem]))) for stem in ordered]
    return [group for group in panels if group.panels]


def trained(rows: Sequence[ConfigResult]) -> bool:
    """Whether any metric of training was logged."""
    return any("train" in name for name in logged_metrics(rows))


def _stem(metric: str) -> str:
    """``loss`` of ``train_loss`` and ``val/loss``."""
    return _STAGE.sub("", metric).strip("_/.- ") or metric


def _panels(rows: Sequence[ConfigResult], metrics: Sequence[str]) -> Iterator[Panel]:
    """A panel for each metric with a finite value. If their values overlap, they share one scale."""
    curves = {metric: {row.config: row.values(metric) for row in rows} for metric in metrics}
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
    epochs = max(row.epochs for row in rows)
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


def _limits(ordered: Sequence[float]) -> tuple[float, float]:
    """The range of the values, without outliers that would press all others into one line."""
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
