"""The interface for authors of plugins. Nothing else of the package is meant for them; our own plugins import
nothing else either.

- ``tasks``: an adapter of a training library (entry-point group ``cerebro.tasks``)
- ``torch_tasks``: what adapters of torch share
- ``parallelism``: a way of spreading a unit over ranks (``cerebro.parallel``)
- ``state``: the state that hops, for both of them
- ``recipes``: the sections of a recipe (``cerebro.tasks.sections``, ``cerebro.parallel.sections``)
- ``scheduling``: a policy of live runs (``cerebro.schedulers``)
- ``searching``: a search procedure or a sampler (``cerebro.search``, ``cerebro.samplers``)
- ``logging``: a logger (``cerebro.loggers``)
- ``launching``: what starts hosts on a cluster (``cerebro.launchers``)
- ``data``, ``errors``, ``front_ends``: columns and sources (``cerebro.sources``), errors, what shows runs

The main names are here, too, imported on use: importing torch takes seconds.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cerebro_elastic.extending.logging import Logger
    from cerebro_elastic.extending.parallelism import Parallelism
    from cerebro_elastic.extending.recipes import ParallelismSection, TaskSection
    from cerebro_elastic.extending.scheduling import Policy, SchedulingContext
    from cerebro_elastic.extending.searching import Sampler, Search
    from cerebro_elastic.extending.tasks import Task, UnitJob, UnitResult

__all__ = [
    "Logger",
    "Parallelism",
    "ParallelismSection",
    "Policy",
    "Sampler",
    "SchedulingContext",
    "Search",
    "Task",
    "TaskSection",
    "UnitJob",
    "UnitResult",
]

_HOMES = {
    "Logger": "logging",
    "Parallelism": "parallelism",
    "ParallelismSection": "recipes",
    "Policy": "scheduling",
    "Sampler": "searching",
    "SchedulingContext": "scheduling",
    "Search": "searching",
    "Task": "tasks",
    "TaskSection": "recipes",
    "UnitJob": "tasks",
    "UnitResult": "tasks",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
