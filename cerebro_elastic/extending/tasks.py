"""A task trains units: its interface, what a unit gets and returns, and its batches in the run's order.

Nothing here imports torch; ``torch_tasks`` has what tasks of torch share.
"""

from __future__ import annotations

from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.core.model.units import Phase, Strategy, Unit
from cerebro_elastic.data.batches import BatchPart, whole
from cerebro_elastic.training import generators, job_batches
from cerebro_elastic.training.finite_arrays import not_finite_arrays
from cerebro_elastic.training.task import (
    GENERATORS,
    Exported,
    Exports,
    Observe,
    OrdinaryFit,
    ReadsLength,
    SetsThreads,
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
    "OrdinaryFit",
    "Phase",
    "ReadsLength",
    "SetsThreads",
    "Stopped",
    "Strategy",
    "SupportsCheck",
    "SupportsPrecheck",
    "Task",
    "TaskState",
    "Unit",
    "UnitJob",
    "UnitResult",
    "generators",
    "job_batches",
    "not_finite_arrays",
    "whole",
]
