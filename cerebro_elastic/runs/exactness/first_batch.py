"""Trains and validates the first batch before a run starts, so that an error of the user's code comes alone,
and before anything is assigned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.core.model.units import Strategy
from cerebro_elastic.data.manifest import Manifest
from cerebro_elastic.errors import TaskError
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.reporting.tables import hparams_text
from cerebro_elastic.runs.exactness.check_configs import (
    device_of_checks,
    representative_configs,
    small_jobs,
    why_not_forked,
)
from cerebro_elastic.runs.exactness.outcome import unlogged
from cerebro_elastic.runs.from_recipe import batches_in, strategies
from cerebro_elastic.system.explanations import explain_error, frames_first
from cerebro_elastic.system.subprocess_call import ChildDied, call_in_fork
from cerebro_elastic.system.words import counted
from cerebro_elastic.training.task import Task
from cerebro_elastic.training.unit_runner import make_task, use_threads

_CONFIGS = 3
_ROWS = 256
"""An error counts if this number of rows of each partition raises it, too: a metric may need many."""
_SECONDS = 30.0
"""For one config. A model that takes longer shows its errors in the run."""


def check_first_batch(
    recipe: Recipe, points: Sequence[HParams], url: str, manifest: Manifest
) -> tuple[str, ...]:
    """Train and validate the first batch of one of the ``points`` of each shape.

    Where the recipe has no strategy for one rank, where imports have started threads, and where it takes too
    long, nothing is found out.

    Returns:
        Why some of these configs cannot be trained, where others can.

    Raises:
        TaskError: None of these configs can be trained, or none logs the objective.
    """
    task = make_task(recipe)
    if Strategy() not in strategies(recipe) or why_not_forked(recipe) is not None:
        return ()
    use_threads(recipe, task, 1)  # a pool of threads would not be there in children
    tried = representative_configs(points, _CONFIGS)
    problems: list[str] = []
    try:
        for point in tried:
            problem = _problem(task, recipe, url, point, 1)
            if problem is not None:
                size, _ = batches_in(recipe, manifest, point)
                problem = _problem(task, recipe, url, point, max(2, _ROWS // size))
            if problem is not None:
                problems.append(f"{problem}\nin the first batches of {hparams_text(point) or 'the config'}")
    except ChildDied:
        return ()
    if not problems or len(problems) < len(tried):
        return tuple(problems)
    others = f", and of {counted(len(problems) - 1, 'other config')}" if problems[1:] else ""
    raise TaskError(f"{problems[0]}{others}. Nothing was started.{_advice(recipe, manifest)}")


def _problem(task: Task, recipe: Recipe, url: str, point: HParams, batches: int) -> str | None:
    """Why ``batches`` of each of two small partitions cannot be trained and validated, if so."""
    jobs = [replace(job, device=device_of_checks()) for job in small_jobs(task, recipe, url, point, batches)]

    def trained() -> Mapping[str, Any]:
        logged: set[str] = set()
        state = None
        try:
            for job in jobs:
                result = task.train(replace(job, state=state))
                state = result.state
                logged.update(result.metrics)
                if result.done or (job.last and unlogged(recipe, logged) is None):
                    break
        except (Exception, SystemExit) as error:
            return {"problem": frames_first(explain_error(error, recipe.root))}
        return {"problem": unlogged(recipe, logged)}

    problem: str | None = call_in_fork(trained, _SECONDS)["problem"]
    return problem


def _advice(recipe: Recipe, manifest: Manifest) -> str:
    """What is likely missing in the recipe, if the module gets values that it can do nothing with."""
    closed = [c.name for c in manifest.columns if c.kind == "bytes" and c.name not in recipe.data.decode]
    if not closed or recipe.data.transform or recipe.data.collate:
        return ""
    return (
        f"\nThe column {closed[0]!r} has the bytes of files, which come as a list: name a function that opens"
        f" one of them, `data: {{decode: {{{closed[0]}: my_data:open_it}}}}`"
    )
