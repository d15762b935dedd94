"""What a search compares configs by. Less is better here, whatever the recipe's ``mode``; NaN, infinite and
missing values are the worst there is (``math.inf``), and of equals the config that was created first wins."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cerebro_elastic.core.model.interfaces import ConfigView
from cerebro_elastic.core.model.state import Point
from cerebro_elastic.errors import SearchError, did_you_mean
from cerebro_elastic.recipes import Objective as Section
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.recipes.search import SampledSearch
from cerebro_elastic.words import counted


@dataclass(frozen=True, slots=True)
class Objective:
    """A metric that is to become small (``sign`` 1) or large (-1)."""

    metric: str
    sign: float

    @classmethod
    def of(cls, section: Section, metric: str | None = None) -> Objective:
        """The recipe's objective, or another ``metric`` in its place."""
        return cls(metric or section.metric, 1.0 if section.mode == "min" else -1.0)

    def value(self, point: Point) -> float:
        """The metric as it was logged; NaN if it was not."""
        return point.metrics.get(self.metric, math.nan)

    def finite(self, point: Point) -> bool:
        return math.isfinite(self.value(point))

    def loss(self, point: Point) -> float:
        return self.sign * self.value(point) if self.finite(point) else math.inf

    def best(self, view: ConfigView) -> float:
        """The least loss at the end of an epoch."""
        return min((self.loss(point) for point in epoch_ends(view)), default=math.inf)

    def told(self, loss: float) -> str:
        """A loss as the metric's value."""
        return f"{self.metric} {self.sign * loss:.4g}" if math.isfinite(loss) else f"{self.metric} not finite"

    def check_logged_at(self, points: Sequence[Point]) -> None:
        """Raise ``SearchError`` if something was logged at these points, and at none of them the metric."""
        logged = {name for point in points for name in point.metrics}
        if points and self.metric not in logged:
            raise SearchError(
                f"the search compares configs by {self.metric!r}, which was not logged where it does; "
                f"{did_you_mean(self.metric, logged)}. Log it, or correct objective.metric or search.metric "
                "(rungs in units need a metric that is known after every unit)"
            )


@dataclass(frozen=True, slots=True)
class Resource:
    """What rungs are measured in: epochs, or whole training units."""

    unit: str

    def of(self, view: ConfigView) -> int:
        """How far a config has come, its parent's way included."""
        return view.epochs if self.unit == "epochs" else view.units

    def at(self, view: ConfigView, amount: int) -> Point | None:
        """What the config had logged when it had come so far; ``None`` if it has not, or not by itself."""
        curve = view.curve
        if self.unit == "epochs":  # an epoch's end is the first point that counts it
            place = bisect_left(curve, amount, key=lambda point: point.epochs)
            there = place < len(curve) and curve[place].epochs == amount and curve[place].ends
            return curve[place] if there else None
        place = bisect_right(curve, amount, key=lambda point: point.units) - 1
        return curve[place] if place >= 0 and curve[place].units == amount else None

    def told(self, amount: int, partitions: int) -> str:
        """The amount in words."""
        if self.unit == "epochs":
            return counted(amount, "epoch")
        epoch, done = divmod(amount, partitions)
        return f"{done} of {partitions} partitions of epoch {epoch + 1}" if done else counted(epoch, "epoch")


def epoch_ends(view: ConfigView) -> Sequence[Point]:
    """The points at which an epoch was complete, validation included."""
    return [point for point in view.curve if point.ends]


def ranked(losses: Iterable[tuple[float, ConfigView]]) -> list[ConfigView]:
    """Those with a finite loss, the best first."""
    known = [(loss, place, s) for place, (loss, s) in enumerate(losses) if math.isfinite(loss)]
    return [view for _, _, view in sorted(known, key=lambda item: item[:2])]


def objectives_of(recipe: Recipe) -> list[Objective]:
    """What the search has to weigh."""
    section = recipe.search
    several = section.objectives if isinstance(section, SampledSearch) else ()
    return [Objective.of(each) for each in several or (recipe.objective,)]
