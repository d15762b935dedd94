"""A task trains units: its interface, what a unit gets and returns, and its batches in the run's order."""

from __future__ import annotations

from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.core.model.units import Phase, Strategy, Unit
from cerebro_elastic.data.batches import Part, whole
from cerebro_elastic.training import feed, rng
from cerebro_elastic.training.finite import not_finite
from cerebro_elastic.training.inheriting import Options as OptimizerOptions
from cerebro_elastic.training.inheriting import options as optimizer_options
from cerebro_elastic.training.inheriting import set_anew as set_options_anew
from cerebro_elastic.training.task import (
    GENERATORS,
    Exported,
    Exports,
    Observe,
    OrdinaryFit,
    Stopped,
    SupportsCheck,
    SupportsPrecheck,
    Task,
    TaskState,
    UnitJob,
    UnitResult,
)

__all__ = [
    "GENERATORS",
    "Exported",
    "Exports",
    "HParams",
    "Observe",
    "OptimizerOptions",
    "OrdinaryFit",
    "Part",
    "Phase",
    "Stopped",
    "Strategy",
    "SupportsCheck",
    "SupportsPrecheck",
    "Task",
    "TaskState",
    "Unit",
    "UnitJob",
    "UnitResult",
    "feed",
    "not_finite",
    "optimizer_options",
    "rng",
    "set_options_anew",
    "whole",
]
