"""Columns of data as sources give them and their check, users' datasets, and processes that make batches."""

from __future__ import annotations

from cerebro_elastic.data.preparing.column_checks import check_given
from cerebro_elastic.data.preparing.growing import GrowingColumn
from cerebro_elastic.data.preparing.sources import as_column
from cerebro_elastic.data.ragged import Arrays, Columns
from cerebro_elastic.data.reading.batches import in_worker_processes
from cerebro_elastic.data.reading.dataset_factory import DatasetFactory
from cerebro_elastic.data.reading.datasets import indivisible
from cerebro_elastic.data.reading.made_once import Batches

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
]
