"""Checks the configs of a recipe that stand for the others, one after the other, in this process."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import torch

from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.data.reading.function_survey import survey
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.runs.exactness.compare import ExactnessCheck, Trainer, Training
from cerebro_elastic.runs.exactness.differences import differences, explain_together, steady
from cerebro_elastic.runs.exactness.fork import ChildDied, call_in_fork
from cerebro_elastic.runs.exactness.outcome import ALONE, CheckedConfig, CheckOutcome, Exactness
from cerebro_elastic.runs.exactness.small_jobs import representative_configs, small_jobs
from cerebro_elastic.system.process import thread_names
from cerebro_elastic.training import job_batches
from cerebro_elastic.training.task import UnitJob
from cerebro_elastic.training.unit_runner import make_task, use_threads


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
    """Check one of the ``points`` of each shape, and at least two, with rows of the dataset at ``data``.

    Each is checked for itself; then those that are exact train in turns in one process, and one that differs
    in that comes once more."""
    if extent.beside:
        _make_way(recipe)
    task = make_task(recipe)
    use_threads(recipe, task, 1)  # a pool of threads would not be there in children
    if recipe.task.ARRAYS == "torch":
        # The first optimizer imports it, for seconds: each child would.
        importlib.import_module("torch._dynamo")
    device = "cpu" if extent.beside else device_of_checks()
    refusal = why_not_forked(recipe)
    exact = []
    for point in representative_configs(points, extent.most):
        if refusal is not None:
            yield CheckedConfig(point, Exactness(CheckOutcome.UNKNOWN, refusal))
            continue
        jobs = [replace(job, device=device) for job in small_jobs(task, recipe, data, point, extent.batches)]
        check = ExactnessCheck(task, jobs, recipe.root, extent.folder, extent.seconds)
        result = check.result()
        if point is points[0] and not result.outcome.bad:
            workers = recipe.data.workers
            result = replace(result, data=_data_functions(jobs[0], workers, extent.seconds))
        checked = CheckedConfig(point, result)
        if checked.exactness.outcome.good:
            exact.append((checked, check))
        yield checked
    if len(exact) > 1:
        for at, story in differ_together([check for _, check in exact]).items():
            checked = exact[at][0]
            differs = replace(checked.exactness, outcome=CheckOutcome.DIFFERS, story=story, reference=ALONE)
            yield replace(checked, exactness=differs)


def _data_functions(job: UnitJob, workers: int, seconds: float) -> Sequence[str]:
    """What the functions that make the job's batches draw, keep and cost, found by a child."""
    loader = replace(job_batches.loader_settings(job), workers=workers)

    def found() -> dict[str, list[str]]:
        try:
            return {"data": survey(job.partition, loader)}
        except Exception:  # the units have shown it, if it matters
            return {"data": []}

    with suppress(ChildDied):
        lines: list[str] = call_in_fork(found, seconds=seconds)["data"]
        return lines
    return ()


def why_not_forked(recipe: Recipe) -> str | None:
    """A fork has none of its parent's threads, and waits for ever for those of XLA. Threads without a name of
    their own are those of BLAS, which is prepared for forks, and Python's."""
    threads = {name for name in thread_names() if name.startswith("tf_")}
    if recipe.task.ARRAYS == "torch" or not threads:
        return None
    return (
        f"an import has started threads ({', '.join(sorted(threads))}), so that the process of the check "
        "cannot be forked: compute in functions, and not while a module is imported"
    )


def _make_way(recipe: Recipe) -> None:
    """Give way to the run's ranks. A process's niceness counts within its session only; between sessions, and
    each rank has its own, the session's counts. Other frameworks than torch would take a GPU, and its memory,
    by themselves."""
    os.nice(19)
    if recipe.task.ARRAYS == "numpy":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    for name, value in (("autogroup", "19"), ("oom_score_adj", "1000")):
        with suppress(OSError):
            Path("/proc/self", name).write_text(value)


def device_of_checks() -> str:
    """The device, found by a child: a process that has looked for GPUs cannot hand them on."""
    answer = call_in_fork(lambda: {"cuda": torch.cuda.is_available()}, seconds=60.0)
    return "cuda:0" if answer["cuda"] else "cpu"


def differ_together(checks: Sequence[ExactnessCheck]) -> Mapping[int, str]:
    """Train the units of all ``checks``, which are done, in turns in one process. By the index of each that
    then differs from itself alone: in what. None if it could not be found out."""
    deadline = monotonic() + sum(check.seconds for check in checks)
    with TemporaryDirectory(dir=checks[0].folder) as states:
        steps = [Trainer(check, states, deadline).steps() for check in checks]

        def in_turns() -> dict[str, Any]:
            while any(each.left for each in steps):
                for each in steps:
                    if each.left:
                        each.train_here()
            return {"trainings": [asdict(each.training) for each in steps]}

        try:
            answer = call_in_fork(in_turns, deadline - monotonic())
        except ChildDied:
            return {}
    stories = {}
    for at, (check, found) in enumerate(zip(checks, answer["trainings"], strict=True)):
        together = Training.of_json(found)
        if together.error is not None:
            stories[at] = explain_together(together.error)
        elif rest := steady(differences(check.alone.all, together.all), check.varying):
            stories[at] = explain_together(rest)
    return stories
