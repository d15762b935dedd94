"""A user's ``optuna.Study`` as the search of a run: the study becomes the recipe's section, and afterwards
the configs become trials of the study. (optuna is not imported here; ``study_journal.py`` makes studies.)"""

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
    """Whether this is an ``optuna.Study``."""
    return f"{type(value).__module__}.{type(value).__name__}" == "optuna.study.study.Study"


def section_of(study: optuna.Study, objective: Objective) -> dict[str, Any]:
    """A recipe's ``search`` section for the study's sampler, pruner and enqueued trials.

    Sampler and pruner get their default arguments: optuna does not expose the study's own.

    Raises:
        SearchError: The sampler or pruner has no counterpart, the direction is not the ``objective``'s,
            or the study has several directions.
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


def tell(study: optuna.Study, of_run: optuna.Study) -> None:
    """Add the trials of a run's study to the user's ``study``. They include its enqueued trials, which
    therefore no longer wait."""
    for trial in study.get_trials(deepcopy=False):
        if trial.state.name == "WAITING":
            study.tell(study.ask(), state=type(trial.state).FAIL)  # ask() returns waiting trials first
    study.add_trials(of_run.get_trials(deepcopy=False))


def _check(kind: str, name: str, known: Iterable[str]) -> None:
    if name not in known:
        raise SearchError(
            f"the study's {kind} is {name}, which has no counterpart here; choices: {', '.join(known)}"
        )
