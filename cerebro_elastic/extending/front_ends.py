"""For front ends such as ``CerebroTrainer``, which start runs from Python objects."""

from __future__ import annotations

from cerebro_elastic.front_end.notebook_view import in_notebook
from cerebro_elastic.front_end.objects import References, root_of
from cerebro_elastic.front_end.run import Interrupted, OnInterrupt
from cerebro_elastic.runs.folder import default_home
from cerebro_elastic.runs.live import LiveView, Watcher
from cerebro_elastic.search import studies
from cerebro_elastic.training.unit_runner import make_task

__all__ = [
    "Interrupted",
    "LiveView",
    "OnInterrupt",
    "References",
    "Watcher",
    "default_home",
    "in_notebook",
    "make_task",
    "root_of",
    "studies",
]
