"""For front ends such as ``CerebroTrainer``, which start runs from Python objects."""

from __future__ import annotations

from cerebro_elastic.cells import is_in_cell, written
from cerebro_elastic.runs.folder import default_home
from cerebro_elastic.runs.live import LiveView
from cerebro_elastic.search import studies
from cerebro_elastic.training.unit_runner import make_task

__all__ = [
    "LiveView",
    "default_home",
    "is_in_cell",
    "make_task",
    "studies",
    "written",
]
