"""How much each hyper-parameter matters for the objective, by optuna."""

from __future__ import annotations

from typing import Any

from cerebro_elastic.errors import CerebroError
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.ui.view import RunView

_LEAST = 4


def importances(view: RunView) -> dict[str, Any]:
    """The shares by name, the most important first; or why there are none."""
    metric = view.objective.metric
    ended = [row for row in view.results.values() if row.best is not None and row.status != "live"]
    if len(ended) < _LEAST:
        return {"problem": f"importances need {_LEAST} configs that have ended with a value of {metric}"}
    try:
        from optuna.importance import get_param_importances

        from cerebro_elastic.search.study_journal import study_of
    except ImportError:
        return {"problem": "importances need optuna: pip install 'cerebro-elastic[search]'"}
    events = list(view.events)
    try:
        recipe = load_recipe(view.spec.recipe, root=view.spec.root)
        shares = get_param_importances(study_of(recipe, view.plan.run, lambda: events))
    except (CerebroError, ValueError, RuntimeError) as error:
        return {"problem": f"optuna cannot say: {error}"}
    return {"shares": [[name, share] for name, share in shares.items()], "configs": len(ended)}
