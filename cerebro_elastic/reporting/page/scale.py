"""From values to places on a chart, and the marks along an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_ABOUT = 5
"""Marks along an axis, more or less."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on an axis."""

    at: float
    """Its place in pixels."""
    text: str


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values to places. Values outside the range are placed at the nearer end."""

    low: float
    """The least value of the range."""
    high: float
    """The greatest value of the range."""
    start: float
    """The place of ``low`` in pixels."""
    end: float
    """The place of ``high`` in pixels; it may be less than ``start``."""
    log: bool = False
    """Whether places follow the logarithm of values."""

    def __call__(self, value: float) -> float:
        low, high, value = (self._level(v) / 2 for v in (self.low, self.high, value))  # so none overflows
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)

    def _level(self, value: float) -> float:
        return math.log10(max(value, self.low, 1e-300)) if self.log else value

    def ticks(self) -> list[Tick]:
        """About five marks at round values, or one if there is only one value."""
        values = _powers(self.low, self.high) if self.log else []
        return [Tick(self(v), f"{v:.10g}") for v in (values or _rounds(self.low, self.high))]


@dataclass(frozen=True, slots=True)
class Steps:
    """Maps values that are no quantities to places at even steps."""

    values: Sequence[Any]
    """The values in their order."""
    start: float
    """The place of the first value in pixels."""
    end: float
    """The place of the last value in pixels."""

    def __call__(self, value: Any) -> float:
        last = len(self.values) - 1
        share = self.values.index(value) / last if last else 0.5
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[Tick]:
        return [Tick(self(value), number(value)) for value in self.values]


def apart(ticks: Sequence[Tick], least: float) -> list[Tick]:
    """The marks whose labels do not overlap, as they are ``least`` pixels apart: the two outermost, if they
    are far enough apart, and those that fit between them."""
    ordered = sorted(ticks, key=lambda tick: tick.at)
    shown = ordered[:1]
    for tick in ordered[1:-1]:
        if tick.at - shown[-1].at >= least and ordered[-1].at - tick.at >= least:
            shown.append(tick)
    return shown + [tick for tick in ordered[1:][-1:] if tick.at - shown[-1].at >= least]


def number(value: Any) -> str:
    """For people: four digits of a float, anything else as it is."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def wide(low: float, high: float) -> bool:
    """Whether a range is better seen by its logarithm."""
    return low > 0 and high / low >= 100


def _rounds(low: float, high: float) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten."""
    span = high - low
    if not math.isfinite(span) or span <= 1e-9 * max(abs(low), abs(high)):
        return [low]
    power = 10.0 ** math.floor(math.log10(span / _ABOUT))
    step = next((power * by for by in (1, 2, 5, 10) if span / (power * by) <= _ABOUT), power)
    first, last = math.ceil(low / step - 1e-6), math.floor(high / step + 1e-6)
    return [float(f"{i * step:.10g}") for i in range(first, last + 1)]


def _powers(low: float, high: float) -> list[float]:
    """Powers of ten, every n-th if they are many; none if they are less than two."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    step = max(1, (last - first) // _ABOUT)
    powers = [10.0**power for power in range(first, last + 1, step)]
    return powers if len(powers) > 1 else []
