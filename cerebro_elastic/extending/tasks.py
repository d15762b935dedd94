"""A task trains units: its interface, what a unit gets and returns, and its batches in the run's order."""

from __future__ import annotations

from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.core.model.units import Phase, Strategy, Unit
from cerebro_elastic.data.batches import BatchPart, whole
from cerebro_elastic.training import job_batches, rng
from cerebro_elastic.training.finite_check import not_finite
from cerebro_elastic.training.optimizer_options import OptimizerOptions, constructor_options, override_options
from cerebro_elastic.training.task import (
    GENERATORS,
    Exported,
    Exports,
    Observe,
    OrdinaryFit,
    ReadsLength,
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
    "BatchPart",
    "Exported",
    "Exports",
    "HParams",
    "Observe",
    "OptimizerOptions",
    "OrdinaryFit",
    "Phase",
    "ReadsLength",
    "Stopped",
    "Strategy",
    "SupportsCheck",
    "SupportsPrecheck",
    "Task",
    "TaskState",
    "Unit",
    "UnitJob",
    "UnitResult",
    "constructor_options",
    "job_batches",
    "not_finite",
    "override_options",
    "rng",
    "whole",
]
