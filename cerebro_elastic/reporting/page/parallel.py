"""Parallel coordinates: where in the search space the good configs lie."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from cerebro_elastic.reporting.page.scale import Scale, Steps, Tick, apart, number
from cerebro_elastic.reporting.results import ConfigResult
from cerebro_elastic.reporting.tables import hparams_text

WIDTH, HEIGHT = 1000, 312
"""Lines are drawn so wide, and stretched to the page's width; heights are pixels."""
TOP, BOTTOM = 66, 296
LEAST = 52
"""Pixels between two axes: on a narrower page the chart is scrolled."""
_NARROW = 360
_LETTER, _LINE = 6.2, 14
"""Pixels of a letter, and of a line of text."""
_FEW = 6
_ROWS = 3
_DECADES = 30
"""How many times the least value the highest must be for values to lie by their logarithm."""
_NOUGHT = 36
"""Pixels from 0 to the least other value on an axis that is logarithmic but for its 0."""


@dataclass(frozen=True, slots=True)
class Axis:
    """The axis of a hyper-parameter; the last axis is that of the objective."""

    name: str
    """The hyper-parameter's or the metric's name."""
    x: float
    """Its place in percent of the width."""
    ticks: Sequence[Tick]
    log: bool
    """Whether it is logarithmic."""


@dataclass(frozen=True, slots=True)
class Path:
    """The line of a config over all axes."""

    config: str
    points: str
    """The points of an SVG polyline."""
    tip: str
    """The text that appears when the mouse points at it."""


@dataclass(frozen=True, slots=True)
class Coordinates:
    """The chart."""

    axes: Sequence[Axis]
    """The axes from left to right."""
    paths: Sequence[Path]
    """The lines of the configs."""
    letters: int
    """How many letters fit between two axes."""
    rows: int
    """How many rows the names of axes take turns in, so that each has room for ``rows`` times ``letters``."""


@dataclass(frozen=True, slots=True)
class _Places:
    """The places of values on an axis."""

    place: Callable[[Any], float]
    """The place of a value in pixels."""
    ticks: Sequence[Tick]
    """The marks of the axis."""
    log: bool = False
    """Whether places follow the logarithm of values."""


def coordinates(
    rows: Sequence[ConfigResult], metric: str, logarithmic: Mapping[str, bool] = MappingProxyType({})
) -> Coordinates | None:
    """The chart of the hyper-parameters that differ, and of the configs that have a value of ``metric``.

    ``logarithmic`` has the hyper-parameters that were drawn from a range, and whether it was by their
    logarithm. Returns ``None`` if no hyper-parameter differs.
    """
    ranked = [row for row in rows if row.best is not None]
    columns = [(name, [row.hparams.get(name) for row in ranked]) for name in _names(ranked)]
    columns = [(name, column) for name, column in columns if len(set(map(_text, column))) > 1]
    if not columns:
        return None
    places = [_places(column, log=logarithmic.get(name)) for name, column in columns]
    objective = [row.best for row in ranked]
    columns.append((metric, objective))
    places.append(_by_value(objective, log=None))
    letters = int((max(LEAST, _NARROW / (len(columns) - 1)) - 12) / _LETTER)
    longest = max(len(name) for name, _ in columns) + len(" (log)")
    across = [index / (len(columns) - 1) for index in range(len(columns))]
    return Coordinates(
        [
            Axis(name, 100 * x, apart(axis.ticks, _LINE), axis.log)
            for (name, _), x, axis in zip(columns, across, places, strict=True)
        ],
        [
            Path(
                row.config,
                " ".join(
                    f"{WIDTH * x:.1f},{axis.place(column[i]):.1f}"
                    for (_, column), x, axis in zip(columns, across, places, strict=True)
                ),
                f"{row.config}: {hparams_text(row.hparams)}, {metric} {number(row.best)}",
            )
            for i, row in enumerate(ranked)
        ],
        letters=letters,
        rows=min(_ROWS, math.ceil(longest / letters)),
    )


def _names(rows: Sequence[ConfigResult]) -> list[str]:
    """In the order of the search space."""
    return list(dict.fromkeys(name for row in rows for name in row.hparams))


def _places(values: Sequence[Any], *, log: bool | None) -> _Places:
    """Numbers at their values, other values at even steps."""
    if all(map(_is_number, values)):
        return _by_value(values, log=log)
    steps = Steps(sorted(set(map(_text, values))), BOTTOM, TOP)
    return _Places(lambda value: steps(_text(value)), steps.ticks())


def _by_value(values: Sequence[Any], *, log: bool | None) -> _Places:
    """The places of numbers. The axis is logarithmic if the numbers were drawn so (``log``), or if that is
    not known (``None``) and they span decades. A 0 lies below such an axis."""
    low, high = min(values), max(values)
    least = min((value for value in values if value > 0), default=0)
    spans = least > 0 and high / least >= _DECADES
    log = low >= 0 and least > 0 and (spans if log is None else log)
    few = sorted(set(values)) if len(set(values)) <= _FEW else []
    if not log:
        scale = Scale(low, high, BOTTOM, TOP)
        return _Places(scale, [Tick(scale(value), number(value)) for value in few] or scale.ticks())
    scale = Scale(least, high, BOTTOM - _NOUGHT if low == 0 else BOTTOM, TOP, log=True)

    def place(value: Any) -> float:
        return scale(value) if value > 0 else BOTTOM

    nought = [Tick(BOTTOM, "0")] if low == 0 else []
    ticks = [Tick(place(value), number(value)) for value in few] or [*nought, *scale.ticks()]
    return _Places(place, ticks, log=True)


def _is_number(value: Any) -> bool:
    try:
        return type(value) in (int, float) and math.isfinite(value)
    except OverflowError:  # an integer beyond all floats
        return False


def _text(value: Any) -> str:
    return number(value) if isinstance(value, str | float) else json.dumps(value)
