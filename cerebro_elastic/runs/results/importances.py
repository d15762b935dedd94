"""How much each hyper-parameter matters for the objective, by optuna (extra ``search``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.errors import CerebroError, MissingExtra, RunError
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.recipes.search import flattened, is_branching
from cerebro_elastic.registry import install_extra
from cerebro_elastic.reporting.results import ConfigResult
from cerebro_elastic.system.words import counted

LEAST = 10
"""How many configs must have finished: from fewer a forest of trees learns nothing."""


@dataclass(frozen=True, slots=True)
class Importances:
    """How much each hyper-parameter matters for the objective."""

    run: str
    metric: str
    """The objective's metric."""
    shares: Mapping[str, float]
    """By hyper-parameter, the share of the variance that it explains; the most important first. They add up
    to 1."""
    configs: int
    """How many finished configs they rest on."""
    method: str
    """The method: ``fANOVA``, or ``PED-ANOVA`` where scikit-learn is not installed."""
    left_out: tuple[str, ...] = ()
    """Hyper-parameters that are not the same in all branches of the space."""

    @property
    def text(self) -> str:
        """What they rest on, as a sentence."""
        few = "; of so few configs, take them as a hint" if self.configs < 3 * LEAST else ""
        out = f"; without {', '.join(self.left_out)}, which differ between branches" if self.left_out else ""
        return f"by optuna's {self.method} of {counted(self.configs, 'finished config')}{few}{out}"


def importances(
    spec: Spec, recipe: Recipe, events: Sequence[Event], rows: Iterable[ConfigResult]
) -> Importances:
    """How much each hyper-parameter matters for the objective of the run with these ``events``, whose configs
    have the results ``rows``.

    Raises:
        RunError: Too few configs have finished, or nothing varies.
        MissingExtra: optuna is not installed.
    """
    run, metric = spec.plan.run, recipe.objective.metric
    done = [row for row in rows if row.best is not None and row.status is Status.FINISHED]
    if len(done) < LEAST:
        raise RunError(
            f"importances need {LEAST} finished configs with a value of {metric}, and run {run!r} has "
            f"{len(done)}; stopped ones do not count, since they had less training"
        )
    try:
        from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

        from cerebro_elastic.search.study_journal import study_of
    except ImportError as exc:
        raise MissingExtra(f"importances need optuna: {install_extra('search')}") from exc
    try:
        from optuna.importance import FanovaImportanceEvaluator

        evaluator: Any = FanovaImportanceEvaluator(seed=spec.plan.seed)
        method = "fANOVA"
    except ImportError:
        method, evaluator = "PED-ANOVA", PedAnovaImportanceEvaluator()
    try:
        study = study_of(recipe, run, lambda: events)
        found = get_param_importances(study, evaluator=evaluator, target=lambda trial: trial.values[0])
    except (CerebroError, ValueError, RuntimeError) as error:
        raise RunError(f"optuna cannot say what matters in run {run!r}: {error}") from error
    shares = {name: float(share) for name, share in found.items()}
    space = recipe.search.space
    left_out = sorted(flattened(space).keys() - shares.keys()) if is_branching(space) else []
    return Importances(run, metric, shares, len(done), method, tuple(left_out))
