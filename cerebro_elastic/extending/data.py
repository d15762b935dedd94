"""Columns of data as sources give them and their check, users' datasets, and processes that make batches."""

from __future__ import annotations

from cerebro_elastic.data.batches import in_worker_processes, worker_settings
from cerebro_elastic.data.column_checks import check_given
from cerebro_elastic.data.datamodules import indivisible
from cerebro_elastic.data.dataset_factory import DatasetFactory
from cerebro_elastic.data.growing import GrowingColumn
from cerebro_elastic.data.made_batches import Batches
from cerebro_elastic.data.ragged import Arrays, Columns
from cerebro_elastic.data.sources import as_column

__all__ = [
    "Arrays",
    "Batches",
    "Columns",
    "DatasetFactory",
    "GrowingColumn",
    "as_column",
    "check_given",
    "in_worker_processes",
    "indivisible",
    "worker_settings",
]
