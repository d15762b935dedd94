"""cerebro-elastic: Model Hopper Parallelism on TorchElastic.

``run(recipe, **overrides) -> RunResult`` runs a recipe on this machine, ``join(run)`` makes this machine a
node of a run that goes on, ``open_run(run)`` opens one afterwards; ``stop``, ``resume`` and ``clone`` decide
on a config of a live run. All are imported on use: torch loads this package in every process that knows
rendezvous backends.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cerebro_elastic.version import __version__ as __version__

if TYPE_CHECKING:
    from cerebro_elastic.recipes import Recipe, load_recipe
    from cerebro_elastic.runs.control.configs import clone, resume, stop
    from cerebro_elastic.runs.results.result import RunResult, open_run
    from cerebro_elastic.runs.start.join import join
    from cerebro_elastic.runs.start.run import run

__all__ = [
    "Recipe",
    "RunResult",
    "clone",
    "join",
    "load_recipe",
    "open_run",
    "resume",
    "run",
    "stop",
]

_HOMES = {
    "Recipe": "cerebro_elastic.recipes",
    "RunResult": "cerebro_elastic.runs.results.result",
    "clone": "cerebro_elastic.runs.control.configs",
    "join": "cerebro_elastic.runs.start.join",
    "load_recipe": "cerebro_elastic.recipes",
    "open_run": "cerebro_elastic.runs.results.result",
    "resume": "cerebro_elastic.runs.control.configs",
    "run": "cerebro_elastic.runs.start.run",
    "stop": "cerebro_elastic.runs.control.configs",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cerebro_elastic' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
