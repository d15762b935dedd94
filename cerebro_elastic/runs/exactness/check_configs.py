"""Checks the configs of a recipe that stand for the others, one after the other, in this process."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.runs.exactness.compare import check_exactness
from cerebro_elastic.runs.exactness.fork import call_in_fork
from cerebro_elastic.runs.exactness.outcome import CheckedConfig
from cerebro_elastic.runs.exactness.small_jobs import representative_configs, small_jobs
from cerebro_elastic.training.unit_runner import make_task


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is checked, and where."""

    batches: int
    """Batches of each partition."""
    most: int
    """The most configs that are checked."""
    seconds: float
    """The most seconds for each config."""
    folder: str
    """The folder of states meanwhile."""
    beside: bool = False
    """Whether a run goes on beside it: the check then takes the time that the run leaves, no GPU, and is the
    first to be killed when memory runs out."""


def check_configs(
    recipe: Recipe, points: Sequence[HParams], data: str, extent: Extent
) -> Iterator[CheckedConfig]:
    """Check one of the ``points`` of each shape, with rows of the dataset at ``data``."""
    if extent.beside:
        _make_way()
    torch.set_num_threads(1)  # a pool of threads would not be there in children
    task = make_task(recipe)
    device = "cpu" if extent.beside else _device()
    for point in representative_configs(points, extent.most):
        jobs = [replace(job, device=device) for job in small_jobs(task, recipe, data, point, extent.batches)]
        yield CheckedConfig(point, check_exactness(task, jobs, recipe.root, extent.folder, extent.seconds))


def _make_way() -> None:
    """Give way to the run's ranks. A process's niceness counts within its session only; between sessions, and
    each rank has its own, the session's counts."""
    os.nice(19)
    for name, value in (("autogroup", "19"), ("oom_score_adj", "1000")):
        with suppress(OSError):
            Path("/proc/self", name).write_text(value)


def _device() -> str:
    """The device, found by a child: a process that has looked for GPUs cannot hand them on."""
    answer = call_in_fork(lambda: {"cuda": torch.cuda.is_available()}, seconds=60.0)
    return "cuda:0" if answer["cuda"] else "cpu"
