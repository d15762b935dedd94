"""How a search compares configs: by the losses of ``core/model/best.py``."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from cerebro_elastic.core.model.best import epoch_ends, loss, ranking
from cerebro_elastic.core.model.interfaces import ConfigView
from cerebro_elastic.core.model.state import Point
from cerebro_elastic.errors import SearchError, did_you_mean
from cerebro_elastic.recipes import Objective, Recipe
from cerebro_elastic.recipes.search import Constraint
from cerebro_elastic.system.words import counted


@dataclass(frozen=True, slots=True)
class Criterion:
    """A metric, and whether small or large values of it are better."""

    metric: str
    """The metric's name, as the task logs it."""
    mode: str
    """``min`` if small values are better, ``max`` if large ones are."""
    constraints: tuple[Constraint, ...] = ()
    """Bounds of other metrics at the end of an epoch."""

    @classmethod
    def of(cls, objective: Objective, metric: str | None = None) -> Criterion:
        """The recipe's objective, or another ``metric`` in its place."""
        return cls(metric or objective.metric, objective.mode, objective.constraints)

    def value(self, point: Point) -> float:
        """The metric's logged value; NaN without one."""
        return point.metrics.get(self.metric, math.nan)

    def finite(self, point: Point) -> bool:
        return math.isfinite(self.value(point))

    def loss(self, point: Point) -> float:
        """The loss at an epoch's end; the worst one if a constraint is broken."""
        if point.ends and not self.excess(point) < 0:
            return math.inf
        return loss(self.value(point), self.mode)

    def excess(self, point: Point) -> float:
        """The excess of the constraint that is broken most; below 0 if all hold."""
        return max((each.excess(point.metrics) for each in self.constraints), default=-1.0)

    def forgiving(self, folds: Sequence[Point], mean: Point) -> Criterion:
        """The criterion with constraints widened by the gap between the worst of the ``folds`` and their
        ``mean``; constraints without a value for each fold are dropped."""
        wider = {
            each: max(each.excess(fold.metrics) for fold in folds) - each.excess(mean.metrics)
            for each in self.constraints
        }
        constraints = tuple(each.widened(by) for each, by in wider.items() if math.isfinite(by))
        return replace(self, constraints=constraints)

    def best(self, view: ConfigView) -> float:
        """The least loss at the end of an epoch."""
        return min((self.loss(point) for point in epoch_ends(view.curve)), default=math.inf)

    def text(self, loss: float) -> str:
        """A loss as the metric's value."""
        if not math.isfinite(loss):
            outside = ", ".join(map(str, self.constraints))
            return f"{self.metric} not finite{f', or not within {outside}' if outside else ''}"
        return f"{self.metric} {-loss if self.mode == 'max' else loss:.4g}"

    def check_logged_at(self, points: Iterable[Point]) -> None:
        """Raise ``SearchError`` if points exist but none has the metric."""
        logged, any_points = set[str](), False
        for point in points:
            if self.metric in point.metrics:
                return
            logged, any_points = {*logged, *point.metrics}, True
        if any_points:
            raise SearchError(
                f"the search compares configs by {self.metric!r}, which was not logged where it does; "
                f"{did_you_mean(self.metric, logged)}. Log it, or correct objective.metric or search.metric "
                "(rungs in units need a metric that is known after every unit)"
            )


@dataclass(frozen=True, slots=True)
class Resource:
    """The unit of rungs: epochs, or whole training units."""

    unit: str
    """``epochs`` or ``units``."""

    def of(self, view: ConfigView) -> int:
        """The amount of a config's training, its parent's included."""
        return view.epochs if self.unit == "epochs" else view.units

    def at(self, view: ConfigView, amount: int) -> Point | None:
        """The config's logged point at this amount; ``None`` if only its parent reached it, or neither."""
        curve = view.curve
        if self.unit == "epochs":  # an epoch's end is the first point that counts it
            place = bisect_left(curve, amount, key=lambda point: point.epochs)
            logged = place < len(curve) and curve[place].epochs == amount and curve[place].ends
            return curve[place] if logged else None
        place = bisect_right(curve, amount, key=lambda point: point.units) - 1
        return curve[place] if place >= 0 and curve[place].units == amount else None

    def text(self, amount: int, partitions: int) -> str:
        """The amount in words."""
        if self.unit == "epochs":
            return counted(amount, "epoch")
        epoch, visited = divmod(amount, partitions)
        if not visited:
            return counted(epoch, "epoch")
        return f"{visited} of {partitions} partitions of epoch {epoch + 1}"


def ranked(losses: Iterable[tuple[float, ConfigView]]) -> list[ConfigView]:
    """The configs with a finite loss, the best first."""
    views = list(losses)
    return [views[place][1] for place in ranking(loss for loss, _ in views)]


def criteria_of(recipe: Recipe) -> list[Criterion]:
    """The criteria of the search: those of its ``objectives`` if it has several, else the run's objective."""
    constraints = recipe.objective.constraints
    objectives = recipe.search.objectives or (recipe.objective,)
    return [Criterion(objective.metric, objective.mode, constraints) for objective in objectives]
