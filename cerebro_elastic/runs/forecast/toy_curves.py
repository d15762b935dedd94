"""Made-up curves, for what is simulated without a record."""

from __future__ import annotations

from collections.abc import Mapping

from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.simulation import SyntheticMetrics


def toy_curves(recipe: Recipe, plan: Plan) -> SyntheticMetrics:
    """Made-up curves of the metrics that the recipe's search compares."""
    objective = recipe.objective
    metrics: Mapping[str, str] = {objective.metric: objective.mode}
    other_metric = getattr(recipe.search, "metric", None)
    if other_metric is not None:
        metrics = {other_metric: objective.mode, **metrics}
    return SyntheticMetrics(metrics, plan.epochs * plan.trained, plan.seed)
