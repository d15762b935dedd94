"""Checks the representative configs of a recipe one after the other, in this process, on a few batches of the
recipe's own data."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, TypeAlias

import numpy as np

from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.core.model.units import Unit
from cerebro_elastic.data.column_checks import rows_in
from cerebro_elastic.data.manifest import Manifest, PartitionFiles, read_manifest
from cerebro_elastic.data.ragged import Ragged
from cerebro_elastic.data.reading.description import Rows
from cerebro_elastic.data.reading.partition import Partition
from cerebro_elastic.data.shards.first_rows import first_rows
from cerebro_elastic.errors import DataError
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.runs.exactness.compare import ExactnessCheck, Training, without_workers
from cerebro_elastic.runs.exactness.differences import (
    differences,
    explain_together,
    seen,
    steady,
    trains_nothing,
)
from cerebro_elastic.runs.exactness.outcome import ALONE, CheckedConfig, CheckOutcome, Exactness
from cerebro_elastic.runs.from_recipe import batches_in
from cerebro_elastic.system.devices import CPU, device_of, kind_here
from cerebro_elastic.system.files import Place, locate, translated
from cerebro_elastic.system.process import thread_names
from cerebro_elastic.system.subprocess_call import ChildDied, call_in_fork
from cerebro_elastic.system.words import hparams_text
from cerebro_elastic.training.hparams import task_hparams
from cerebro_elastic.training.task import Task, UnitJob
from cerebro_elastic.training.unit_runner import loader_settings, loss_weights, make_task, use_threads

Columns: TypeAlias = dict[str, Rows]


@dataclass(frozen=True, slots=True)
class _Extent:
    """The extent of a check."""

    batches: int
    """The most batches of each partition."""
    most: int
    """The most configs that are checked."""
    seconds: float
    """The most time for each."""
    workers: int
    """The most processes that make batches."""


_BESIDE, _ALONE = _Extent(2, 3, 300.0, 1), _Extent(3, 6, 600.0, 2)
_ROOM_BYTES = 1 << 30
"""The most bytes of made batches that a check keeps, unless the recipe says otherwise."""


def check_configs(
    recipe: Recipe,
    points: Sequence[HParams],
    data: str,
    folder: str,
    say: Callable[[str], None],
    *,
    beside: bool,
) -> Iterator[CheckedConfig]:
    """Check one of the ``points`` of each shape, and at least two, with rows of the dataset at ``data``, and
    ``say`` each next step. States are in ``folder`` during the check. ``beside`` a run the check takes only
    the time that the run leaves, no GPU, and is the first to be killed when memory runs out.

    Each is checked alone; then the exact ones train in turns in one process, and one that then differs is
    reported again."""
    if beside:
        _make_way(recipe)
    extent = _BESIDE if beside else _ALONE
    task = make_task(recipe)
    use_threads(recipe, task, 1)  # a pool of threads would not be there in children
    device = CPU if beside else device_of_checks(recipe)
    chosen = representative_configs(points, extent.most)
    if refusal := why_not_forked(recipe):
        yield from (CheckedConfig(point, Exactness(CheckOutcome.UNKNOWN, refusal)) for point in chosen)
        return
    given = recipe.node.batch_cache_bytes
    room_bytes = _ROOM_BYTES if given is None else given
    exact = []
    for number, point in enumerate(chosen, 1):
        say(f"config {number} of {len(chosen)} ({hparams_text(point)})")
        jobs = small_jobs(task, recipe, data, point, extent.batches, device, workers=extent.workers)
        check = ExactnessCheck(task, jobs, recipe.root, folder, extent.seconds, room_bytes=room_bytes)
        checked = CheckedConfig(point, check.result())
        if checked.exactness.outcome is CheckOutcome.EQUAL:
            exact.append((checked, check))
        yield checked
    if len(exact) > 1:
        say(f"units of {len(exact)} configs in turns in one process")
        for at, story in differ_together([check for _, check in exact]).items():
            checked = exact[at][0]
            found = replace(checked.exactness, outcome=CheckOutcome.DIFFERS, story=story, reference=ALONE)
            yield replace(checked, exactness=found)


def why_not_forked(recipe: Recipe) -> str | None:
    """A fork has none of its parent's threads, and waits for ever for those of XLA. Threads without a special
    name are those of BLAS, which is prepared for forks, and Python's."""
    threads = {name for name in thread_names() if name.startswith("tf_")}
    if recipe.task.ARRAYS == "torch" or not threads:
        return None
    return (
        f"an import has started threads ({', '.join(sorted(threads))}), so that the process of the check "
        "cannot be forked: compute in functions, and not while a module is imported"
    )


_NICENESS = 10
"""Beside a rank that is busy on the same core a tenth of it (``sched(7)``: 110 parts to 1,024)."""


def _make_way(recipe: Recipe) -> None:
    """Take the cores that the run's ranks leave idle, and a small share of busy ones, or the check would end
    after the run. A process's niceness counts only within its session; between sessions (each rank has its
    own) the session's counts. Frameworks other than torch would take a GPU and its memory unasked."""
    os.setpriority(os.PRIO_PROCESS, 0, _NICENESS)
    if recipe.task.ARRAYS == "numpy":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    for name, value in (("autogroup", str(_NICENESS)), ("oom_score_adj", "1000")):
        with suppress(OSError):
            Path("/proc/self", name).write_text(value)


def device_of_checks(recipe: Recipe) -> str:
    """The device, found by a child: a process that has looked for accelerators cannot hand them on."""
    if recipe.task.ARRAYS != "torch":
        return CPU
    answer: str = call_in_fork(lambda: {"kind": kind_here()}, seconds=60.0)["kind"]
    return device_of(answer, 0)


def differ_together(checks: Sequence[ExactnessCheck]) -> Mapping[int, str]:
    """Train the units of all finished ``checks`` in turns in one process. By the index of each that then
    differs from itself alone: the difference. Empty if it could not be found out."""
    deadline = monotonic() + sum(check.seconds for check in checks)
    with TemporaryDirectory(dir=checks[0].folder) as states:
        steps = [check.steps(states, "shared") for check in checks]

        def in_turns() -> dict[str, Any]:
            while any(each.left for each in steps):
                for each in steps:
                    if each.left:
                        each.train_here()
            return {"trainings": [asdict(each.training) for each in steps]}

        try:
            answer = call_in_fork(partial(without_workers, in_turns), deadline - monotonic())
        except ChildDied:
            return {}
    stories = {}
    for at, (check, found) in enumerate(zip(checks, answer["trainings"], strict=True)):
        together = Training.of_json(found)
        rest = steady(differences(check.alone.in_order, together.in_order), check.varying)
        if together.error is not None:
            stories[at] = explain_together(f"it ends with an error: {together.error}")
        elif not trains_nothing(rest):
            stories[at] = explain_together(seen(rest, ALONE))
    return stories


def representative_configs(points: Sequence[HParams], most: int) -> list[HParams]:
    """At most ``most`` of the ``points``: the first one, and those that add values that may make a different
    model. These are names, flags, structures and whole numbers, but no fractions. Among those that add
    equally many, the one with the most other values is taken, and a second one in any case: two configs show
    whether one disturbs the other."""
    chosen = list(points[:1])
    rest = [point for point in points if point != points[0]]
    while rest and len(chosen) < most:
        known = {value for point in chosen for value in _values_of_models(point)}
        worths = [(len(_values_of_models(point) - known), _others(point, points[0])) for point in rest]
        best = max(worths)
        if len(chosen) > 1 and not best[0]:
            break
        chosen.append(rest.pop(worths.index(best)))
    return chosen


def _values_of_models(point: HParams) -> set[tuple[str, str]]:
    """Names with values that may make a different model."""
    return {(name, repr(value)) for name, value in point.items() if not isinstance(value, float)}


def _others(point: HParams, first: HParams) -> int:
    """The number of values that differ from those of the ``first`` config."""
    return sum(point[name] != first.get(name) for name in point)


def small_jobs(
    task: Task, recipe: Recipe, url: str, point: HParams, batches: int, device: str, *, workers: int = 0
) -> list[UnitJob]:
    """The units of ``task`` in two epochs over two small partitions, and a small one to validate on: the
    first rows of the dataset at ``url``, at most ``batches`` of each. At most ``workers`` processes make the
    batches. Raises ``DataError``."""
    with translated(DataError, f"cannot read the dataset {url}"):
        manifest = read_manifest(url)
        size, _ = batches_in(recipe, manifest, point)
        train, valid = _partitions(manifest, locate(url), size, batches, folds=bool(recipe.folds))
    orders = (range(len(train)), range(len(train))[::-1])
    loader = loader_settings(recipe).with_hparams(point)
    loader = replace(loader, workers=min(workers, loader.workers))
    of_task = task_hparams(task, loader, point)
    return [
        UnitJob(
            unit=Unit("c0000", epoch, index),
            hparams=of_task,
            seed=recipe.seed,
            epochs=len(orders),
            visited=tuple(order[:place]),
            rows=tuple(partition.rows for partition in train),
            partition=train[index],
            validation=valid if place + 1 == len(train) and not recipe.validates_apart else (),
            loader=loader,
            state=None,
            device=device,
            loss_weights=loss_weights(recipe, manifest),
        )
        for epoch, order in enumerate(orders)
        for place, index in enumerate(order)
    ]


def _partitions(
    manifest: Manifest, root: Place, size: int, batches: int, *, folds: bool
) -> tuple[list[Partition], list[Partition]]:
    def part(index: int, files: PartitionFiles, split: str) -> Partition:
        columns = first_rows(root, manifest, files, _rows(files.rows, size, batches))
        # Shards may have fewer rows than estimated.
        return Partition(index, rows_in(columns), columns, name=f"{split} partition {index}")

    valid = [part(0, files, "valid") for files in (manifest.train[-1:] if folds else manifest.valid[:1])]
    if len(manifest.train) > 1:
        return [part(index, files, "train") for index, files in enumerate(manifest.train[:2])], valid
    (only,) = manifest.train
    rows = _rows(-(-only.rows // 2), size, batches)
    columns = first_rows(root, manifest, only, 2 * rows)
    return [_slice(columns, 0, rows), *([_slice(columns, rows, 2 * rows)] if only.rows > rows else [])], valid


def _rows(rows: int, size: int, batches: int) -> int:
    """The number of a partition's ``rows`` to take. The last batch is as short as the partition's last one,
    since a model may fail on a shorter one."""
    return rows if rows <= batches * size else (batches - 1) * size + (rows % size or size)


def _slice(columns: Columns, start: int, stop: int) -> Partition:
    rows = np.arange(start, min(stop, rows_in(columns)))
    part = {
        name: column.of(rows) if isinstance(column, Ragged) else column[rows]
        for name, column in columns.items()
    }
    index = int(start > 0)
    return Partition(index, len(rows), part, name=f"train partition {index}")
