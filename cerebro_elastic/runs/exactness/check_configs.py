"""The configs of a recipe that stand for the others, checked one after the other, in this process."""

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
from cerebro_elastic.runs.exactness.forked import in_fork
from cerebro_elastic.runs.exactness.outcome import Checked
from cerebro_elastic.runs.exactness.tiny import one_of_each_shape, tiny_jobs
from cerebro_elastic.training.unit_runner import make_task


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is checked: ``batches`` of each partition, so many configs at ``most``, each for so many
    ``seconds`` at most. ``folder`` is for states meanwhile. ``beside`` others it takes as little as it can:
    the time that they leave, no GPU, and it is the first to go when memory runs out."""

    batches: int
    most: int
    seconds: float
    folder: str
    beside: bool = False


def check_configs(recipe: Recipe, points: Sequence[HParams], data: str, extent: Extent) -> Iterator[Checked]:
    """Check one of the ``points`` of each shape, with rows of the dataset at ``data``."""
    if extent.beside:
        _make_way()
    torch.set_num_threads(1)  # a pool of threads would not be there in children
    task = make_task(recipe)
    device = "cpu" if extent.beside else _device()
    for point in one_of_each_shape(points, extent.most):
        jobs = [replace(job, device=device) for job in tiny_jobs(recipe, data, point, extent.batches)]
        yield Checked(point, check_exactness(task, jobs, recipe.root, extent.folder, extent.seconds))


def _make_way() -> None:
    """To the run's ranks. A session's niceness holds within it; between sessions, as each rank has its own,
    that of the session itself does."""
    os.nice(19)
    for name, value in (("autogroup", "19"), ("oom_score_adj", "1000")):
        with suppress(OSError):
            Path("/proc/self", name).write_text(value)


def _device() -> str:
    """Asked in a child: a process that has looked for GPUs cannot hand them on."""
    found = in_fork(lambda: {"cuda": torch.cuda.is_available()}, seconds=60.0)
    return "cuda:0" if found["cuda"] else "cpu"
