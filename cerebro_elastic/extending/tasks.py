"""A task trains units: its interface, what a unit gets and returns, and its batches in the run's order.

Nothing here imports torch; ``torch_tasks`` has what tasks of torch share.
"""

from __future__ import annotations

from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.core.model.units import Phase, Strategy, Unit
from cerebro_elastic.data.reading.batches import BatchPart, whole
from cerebro_elastic.registry import is_users
from cerebro_elastic.system.arguments import select as select_arguments
from cerebro_elastic.training import job_batches, process_settings
from cerebro_elastic.training.array_task import ArrayTask, Learner, UnitBatches
from cerebro_elastic.training.generators import generators
from cerebro_elastic.training.hparams import Taker
from cerebro_elastic.training.metrics import EpochMeans, not_finite
from cerebro_elastic.training.object_trees import ObjectDecoder, ObjectEncoder
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
from cerebro_elastic.training.user_objects import digest as object_digest

__all__ = [
    "GENERATORS",
    "ArrayTask",
    "BatchPart",
    "EpochMeans",
    "Exported",
    "Exports",
    "HParams",
    "Learner",
    "ObjectDecoder",
    "ObjectEncoder",
    "Observe",
    "OrdinaryFit",
    "Phase",
    "ReadsLength",
    "SetsThreads",
    "Stopped",
    "Strategy",
    "SupportsCheck",
    "SupportsPrecheck",
    "Taker",
    "Task",
    "TaskState",
    "Unit",
    "UnitBatches",
    "UnitJob",
    "UnitResult",
    "generators",
    "is_users",
    "job_batches",
    "not_finite",
    "object_digest",
    "process_settings",
    "select_arguments",
    "whole",
]
