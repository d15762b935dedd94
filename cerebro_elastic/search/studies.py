"""An ``optuna.Study`` of the user's as a search: what it says becomes a recipe's section, and what came of
the configs becomes its trials."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from cerebro_elastic.errors import SearchError
from cerebro_elastic.recipes import Objective

if TYPE_CHECKING:
    import optuna

_SAMPLERS = {
    "TPESampler": "tpe",
    "CmaEsSampler": "cmaes",
    "GPSampler": "gp",
    "QMCSampler": "qmc",
    "NSGAIISampler": "nsga2",
    "RandomSampler": "random",
}
_PRUNERS = {"MedianPruner": "median", "SuccessiveHalvingPruner": "asha", "HyperbandPruner": "hyperband"}


def is_study(value: object) -> bool:
    """Whether this is an ``optuna.Study``. (optuna is imported by whoever has one.)"""
    return f"{type(value).__module__}.{type(value).__name__}" == "optuna.study.study.Study"


def section_of(study: optuna.Study, objective: Objective) -> dict[str, Any]:
    """The keys of a recipe's ``search`` that the study stands for: its sampler and its pruner (each with its
    defaults: optuna keeps their arguments to itself), and what it has enqueued.

    Raises ``SearchError`` for a sampler or pruner without a counterpart, for another direction than the
    ``objective``'s, and for several.
    """
    wanted = "MINIMIZE" if objective.mode == "min" else "MAXIMIZE"
    directions = [direction.name for direction in study.directions]
    if directions != [wanted]:
        raise SearchError(
            f"the study is to {', '.join(directions).lower()}, the objective {objective.metric!r} has mode "
            f"{objective.mode!r}: make them agree"
        )
    sampler, pruner = type(study.sampler).__name__, type(study.pruner).__name__
    _check("sampler", sampler, _SAMPLERS)
    _check("pruner", pruner, ["NopPruner", *_PRUNERS])
    waiting = [trial for trial in study.get_trials(deepcopy=False) if trial.state.name == "WAITING"]
    points = [trial.system_attrs.get("fixed_params", {}) for trial in waiting]
    method = {"method": _SAMPLERS[sampler]}
    if pruner in _PRUNERS:
        method = {"method": _PRUNERS[pruner], "sampler": _SAMPLERS[sampler]}
    return {**method, **({"enqueue": points} if points else {})}


def tell(study: optuna.Study, told: optuna.Study) -> None:
    """Add the trials of ``told``, a run's, to the study of the user's. Those that it had enqueued are among
    them, and wait no longer."""
    for trial in study.get_trials(deepcopy=False):
        if trial.state.name == "WAITING":
            study.tell(study.ask(), state=type(trial.state).FAIL)  # who waits is asked first
    study.add_trials(told.get_trials(deepcopy=False))


def _check(what: str, found: str, known: Iterable[str]) -> None:
    if found not in known:
        raise SearchError(
            f"the study's {what} is {found}, which has no counterpart here; choices: {', '.join(known)}"
        )
