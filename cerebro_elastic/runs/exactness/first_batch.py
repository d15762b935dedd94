"""Trains and validates the first batch before a run starts, so that an error of the user's code appears
alone, and before the first assignment."""

from __future__ import annotations

import resource
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.core.model.units import Phase, Strategy
from cerebro_elastic.data.manifest import Manifest
from cerebro_elastic.errors import TaskError
from cerebro_elastic.hop.checkpoint.tree import flatten, leaves_in
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.runs.exactness.check_configs import (
    device_of_checks,
    representative_configs,
    small_jobs,
    why_not_forked,
)
from cerebro_elastic.runs.exactness.compare import UnitsInARow
from cerebro_elastic.runs.exactness.outcome import unlogged
from cerebro_elastic.runs.from_recipe import batches_in, strategies
from cerebro_elastic.system.devices import use
from cerebro_elastic.system.explanations import explain_error, frames_first, shortened
from cerebro_elastic.system.subprocess_call import ChildDied, ChildExited, call_in_fork
from cerebro_elastic.system.words import counted, hparams_text
from cerebro_elastic.training.fingerprint import fingerprints
from cerebro_elastic.training.task import SupportsCheck, Task
from cerebro_elastic.training.unit_runner import make_task, use_threads

_CONFIGS = 3
_ROWS = 256
"""An error counts if this number of rows of each partition raises it, too: a metric may need many."""
_SECONDS = 30
"""Seconds of the processor for one config. A slower model shows its errors in the run."""
_WAIT_SECONDS = 120.0
"""The most seconds on a busy machine."""


def check_first_batch(
    recipe: Recipe, points: Sequence[HParams], url: str, manifest: Manifest
) -> tuple[str, ...]:
    """Train and validate the first batch of one of the ``points`` of each shape; if none of them can be
    trained, try the others until one can.

    If the recipe has no strategy for one rank, or if imports have started threads, nothing is checked; nor is
    a config that takes too long, nor the ones after it.

    Returns:
        Notes for people on configs that cannot be trained, if others can, and on those whose weights do not
        change.

    Raises:
        TaskError: None of the configs can be trained, or none logs the objective.
    """
    task = make_task(recipe)
    if Strategy() not in strategies(recipe) or why_not_forked(recipe) is not None:
        return ()
    use_threads(recipe, task, 1)  # a pool of threads would not be there in forks
    first_ones = representative_configs(points, _CONFIGS)
    others = [point for point in points if point not in first_ones]
    problems: list[str] = []
    idle: list[str] = []
    tried, until = 0, time.monotonic() + _WAIT_SECONDS
    try:
        device = device_of_checks(recipe)
        for point in [*first_ones, *others]:
            if tried >= len(first_ones) and (len(problems) < tried or time.monotonic() > until):
                break
            tried += 1
            first = _trained(task, recipe, url, point, 1, device)
            if first["problem"] is not None:
                size, _ = batches_in(recipe, manifest, point)
                first = _trained(task, recipe, url, point, max(2, _ROWS // size), device)
            name = hparams_text(point) or "the config"
            if first["problem"] is not None:
                problems.append(f"{first['problem']}\nin the first batches of {name}")
            elif first["idle"]:
                idle.append(name)
    except ChildDied:
        pass
    if problems and len(problems) == tried:
        more = f", and of {counted(len(problems) - 1, 'other config')}" if problems[1:] else ""
        advice = _advice(recipe, manifest, problems[0])
        raise TaskError(f"{problems[0]}{more}. Nothing was started.{advice}")
    notes = [f"some configs cannot be trained; the others are: {problem}" for problem in problems[:_CONFIGS]]
    if idle:
        notes.append(
            f"no weight has changed in the first batches of {'; '.join(idle)}: does the training step return "
            "the loss, and does the optimizer have the weights and a learning rate above 0?"
        )
    return tuple(notes)


def _trained(
    task: Task, recipe: Recipe, url: str, point: HParams, batches: int, device: str
) -> Mapping[str, Any]:
    """The ``problem`` for which ``batches`` of each of two small partitions cannot be trained and validated,
    ``None`` if they can; and whether that is ``idle``: it changes no weight."""
    jobs = small_jobs(task, recipe, url, point, batches, device)

    def trained() -> Mapping[str, Any]:
        resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
        logged: set[str] = set()
        state = None
        seen: list[Mapping[str, str]] = []
        observed = task if isinstance(task, SupportsCheck) else UnitsInARow(task)

        def observe(_moment: str, values: Mapping[str, Any]) -> None:
            if values.keys() != {"batch"}:
                seen.append(_weights(values))

        try:
            use(jobs[0].device)
            for job in jobs:
                with observed.observed(observe):
                    result = observed.train(replace(job, state=state))
                state = result.state
                flatten(state, copies=False)  # values that cannot be stored are reported now
                logged.update(result.metrics)
                if result.not_finite is not None and recipe.limits.not_finite == "fail":
                    return {"problem": result.not_finite}
                if result.done or (job.last and unlogged(recipe, logged) is None):
                    break
            if recipe.validates_apart:
                task.evaluate(replace(jobs[0], unit=replace(jobs[0].unit, phase=Phase.EVALUATE), state=state))
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            return {"problem": frames_first(shortened(explain_error(error, recipe.root)))}
        return {"problem": unlogged(recipe, logged), "idle": any(seen) and all(s == seen[0] for s in seen)}

    try:
        return call_in_fork(trained, _WAIT_SECONDS)
    except ChildExited as died:
        return {"problem": f"{died}: the module, or a library that it uses, has ended it"}


def _weights(values: Mapping[str, Any]) -> Mapping[str, str]:
    """Fingerprints of the weights among ``values``; for a task that does not name them, of the arrays of
    floats in its state. Single values are counters, not weights."""
    arrays = [leaf for leaf in leaves_in(values.get("weight", values)) if getattr(leaf, "ndim", 0) > 0]
    return fingerprints({"": [leaf for leaf in arrays if "float" in str(getattr(leaf, "dtype", ""))]})


def _advice(recipe: Recipe, manifest: Manifest, problem: str) -> str:
    """The likely omission in the recipe, if the module gets values that it cannot use."""
    data = recipe.data
    if "argument after ** must be a mapping" in problem and data.layout != "dict":
        return "\nA batch is a tuple of the columns; `data: {layout: dict}` makes it a dict with their names"
    closed = [c.name for c in manifest.columns if c.kind == "bytes" and c.name not in data.decode]
    if not closed or data.transform or data.collate or data.embed:
        return ""
    return (
        f"\nThe column {closed[0]!r} has the bytes of files, which come as a list: name a function that opens"
        f" one of them, `data: {{decode: {{{closed[0]}: my_data:open_it}}}}`"
    )
