"""cerebro-elastic: Model Hopper Parallelism on TorchElastic.

``run`` trains the configs of a recipe and returns a ``RunResult``. All public names are imported on use:
torch loads this package in every process that knows rendezvous backends.

Before a run: ``Recipe``, ``load_recipe``, ``prepare``, ``plan``, ``simulate``.
Runs: ``run``, ``join``, ``Run``, ``RunStatus``, ``RunCallback``.
Results: ``RunResult``, ``ConfigResult``.
Errors: all derive from ``CerebroError``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cerebro_elastic.system.version import __version__ as __version__
from cerebro_elastic.system.version import check_system as _check_system

if TYPE_CHECKING:
    from cerebro_elastic.config import StoreSettings
    from cerebro_elastic.errors import (
        CerebroError,
        CheckpointError,
        DataError,
        MissingExtra,
        RecipeError,
        RunError,
        RunFailed,
        ScheduleError,
        SearchError,
        StorageError,
        StoreError,
        TaskError,
    )
    from cerebro_elastic.front_end.run import run
    from cerebro_elastic.recipes import Recipe, load_recipe
    from cerebro_elastic.reporting.results import ConfigResult
    from cerebro_elastic.runs.callbacks import RunCallback
    from cerebro_elastic.runs.forecast.plan import plan
    from cerebro_elastic.runs.forecast.simulate import simulate
    from cerebro_elastic.runs.recorded import RunStatus
    from cerebro_elastic.runs.results.result import RunResult
    from cerebro_elastic.runs.run import Run
    from cerebro_elastic.runs.start.join import join
    from cerebro_elastic.runs.start.prepare_data import prepare

__all__ = [
    "CerebroError",
    "CheckpointError",
    "ConfigResult",
    "DataError",
    "MissingExtra",
    "Recipe",
    "RecipeError",
    "Run",
    "RunCallback",
    "RunError",
    "RunFailed",
    "RunResult",
    "RunStatus",
    "ScheduleError",
    "SearchError",
    "StorageError",
    "StoreError",
    "StoreSettings",
    "TaskError",
    "join",
    "load_recipe",
    "plan",
    "prepare",
    "run",
    "simulate",
]

_MODULES = {
    "config": ["StoreSettings"],
    "errors": [name for name in __all__ if name.endswith("Error") or name in ("MissingExtra", "RunFailed")],
    "front_end.run": ["run"],
    "recipes": ["Recipe", "load_recipe"],
    "reporting.results": ["ConfigResult"],
    "runs.callbacks": ["RunCallback"],
    "runs.forecast.plan": ["plan"],
    "runs.forecast.simulate": ["simulate"],
    "runs.results.result": ["RunResult"],
    "runs.recorded": ["RunStatus"],
    "runs.run": ["Run"],
    "runs.start.prepare_data": ["prepare"],
    "runs.start.join": ["join"],
}
_HOMES = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cerebro_elastic' has no attribute {name!r}")
    _check_system()  # not sooner: torch imports this package for its rendezvous handlers, on any system
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
