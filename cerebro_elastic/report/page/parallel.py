"""Parallel coordinates: where in the search space the good configs lie."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from cerebro_elastic.report.page.scale import Scale, Steps, Tick, number
from cerebro_elastic.report.results import ConfigResult
from cerebro_elastic.report.tables import hparams_text

WIDTH, HEIGHT = 1000, 300
LEFT, RIGHT, TOP, BOTTOM = 70, 930, 40, 270
_FEW = 6


@dataclass(frozen=True, slots=True)
class Axis:
    """A hyper-parameter, or at last the objective."""

    name: str
    x: float
    ticks: Sequence[Tick]


@dataclass(frozen=True, slots=True)
class Path:
    """A config's way over all axes."""

    config: str
    points: str
    tip: str


@dataclass(frozen=True, slots=True)
class Coordinates:
    axes: Sequence[Axis]
    paths: Sequence[Path]


def coordinates(
    rows: Sequence[ConfigResult], metric: str, logarithmic: Collection[str] = ()
) -> Coordinates | None:
    """For the hyper-parameters that differ, and the configs that have a value of ``metric``; nothing if that
    leaves nothing to compare. ``logarithmic`` are those that were drawn so."""
    known = [row for row in rows if row.best is not None and math.isfinite(row.best)]
    columns = {name: [row.hparams.get(name) for row in known] for name in _names(known)}
    columns = {name: column for name, column in columns.items() if len(set(map(_text, column))) > 1}
    if not columns:
        return None
    columns[metric] = [row.best for row in known]
    axes, heights = [], []
    for index, (name, column) in enumerate(columns.items()):
        place, ticks = _axis(column, log=name in logarithmic)
        axes.append(Axis(name, LEFT + index * (RIGHT - LEFT) / (len(columns) - 1), ticks))
        heights.append([place(value) for value in column])
    return Coordinates(
        axes,
        [
            Path(
                row.config,
                " ".join(f"{axis.x:.1f},{column[i]:.1f}" for axis, column in zip(axes, heights, strict=True)),
                f"{row.config}: {hparams_text(row.hparams)}, {metric} {number(row.best)}",
            )
            for i, row in enumerate(known)
        ],
    )


def _names(rows: Sequence[ConfigResult]) -> list[str]:
    """In the order of the search space."""
    return list(dict.fromkeys(name for row in rows for name in row.hparams))


def _axis(values: Sequence[Any], *, log: bool) -> tuple[Callable[[Any], float], list[Tick]]:
    """A few values lie at even steps, many numbers each at its place."""
    few = set(map(_text, values))
    numbers = all(type(value) in (int, float) for value in values)
    if numbers and len(few) > _FEW:
        low, high = min(values), max(values)
        scale = Scale(low, high, BOTTOM, TOP, log=log and low > 0)
        return scale, scale.ticks()
    ordered = list(dict.fromkeys(map(_text, sorted(values)))) if numbers else sorted(few)
    steps = Steps(ordered, BOTTOM, TOP)
    return lambda value: steps(_text(value)), steps.ticks()


def _text(value: Any) -> str:
    return number(value) if isinstance(value, str | float) else json.dumps(value)
