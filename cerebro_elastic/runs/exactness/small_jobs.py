"""A recipe in small, to check it in seconds: a few of its configs, and a few batches of its own data."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.core.model.units import Unit
from cerebro_elastic.data.manifest import Manifest, PartitionFiles, read_manifest
from cerebro_elastic.data.ragged import Ragged
from cerebro_elastic.data.reading.description import Rows, first_rows
from cerebro_elastic.data.reading.partition import Partition
from cerebro_elastic.errors import DataError
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.runs.from_recipe import batches_in
from cerebro_elastic.system.files import Place, locate, translated
from cerebro_elastic.training.hparams import bound, task_hparams
from cerebro_elastic.training.task import Task, UnitJob
from cerebro_elastic.training.unit_runner import loader_settings, loss_weights

Columns: TypeAlias = dict[str, Rows]


def representative_configs(points: Sequence[HParams], most: int) -> list[HParams]:
    """At most ``most`` of the ``points``: the first one, and those that add values that may make another
    model. These are names, flags and structures, then whole numbers, but no fractions.

    If no other adds such a value, the one with the most other values comes second: two configs show whether
    one disturbs the other."""
    chosen = list(points[:1])
    rest = list(points[1:])
    while rest and len(chosen) < most:
        known = {pair for point in chosen for pair in _pairs(point)}
        best = max(rest, key=lambda point: _worth(point, known))
        if _worth(best, known) == (0, 0):
            break
        chosen.append(best)
        rest.remove(best)
    others = [point for point in rest if point != points[0]]
    if len(chosen) == 1 < most and others:
        chosen.append(
            max(others, key=lambda point: sum(point[name] != points[0].get(name) for name in point))
        )
    return chosen


def _pairs(point: HParams) -> dict[tuple[str, str], bool]:
    """Names with values that may make another model, and whether they surely are categories."""
    return {
        (name, repr(value)): not isinstance(value, int) or isinstance(value, bool)
        for name, value in point.items()
        if not isinstance(value, float)
    }


def _worth(point: HParams, known: Collection[tuple[str, str]]) -> tuple[int, int]:
    new = [is_category for pair, is_category in _pairs(point).items() if pair not in known]
    return sum(new), len(new) - sum(new)


def small_jobs(task: Task, recipe: Recipe, url: str, point: HParams, batches: int) -> list[UnitJob]:
    """The units of ``task`` in two epochs over two small partitions, and a small one to validate on: the
    first rows of those at ``url``, at most ``batches`` of each. Raises ``DataError``."""
    with translated(DataError, f"cannot read the dataset {url}"):
        manifest = read_manifest(url)
        size, _ = batches_in(recipe, manifest, point)
        train, valid = _partitions(manifest, locate(url), size, batches)
    orders = (range(len(train)), range(len(train))[::-1])
    loader = replace(bound(loader_settings(recipe), point), workers=0)
    of_task = task_hparams(task, loader.dataset, point)
    return [
        UnitJob(
            unit=Unit("c0000", epoch, index),
            hparams=of_task,
            seed=recipe.seed,
            epochs=len(orders),
            visited=tuple(order[:place]),
            rows=tuple(partition.rows for partition in train),
            partition=train[index],
            validation=valid if place + 1 == len(train) and recipe.validation == "epoch" else (),
            loader=loader,
            state=None,
            loss_weights=loss_weights(recipe, manifest),
        )
        for epoch, order in enumerate(orders)
        for place, index in enumerate(order)
    ]


def _partitions(
    manifest: Manifest, root: Place, size: int, batches: int
) -> tuple[list[Partition], list[Partition]]:
    def part(index: int, files: PartitionFiles) -> Partition:
        rows = _rows(files.rows, size, batches)
        return Partition(index, rows, first_rows(root, manifest.columns, files, rows))

    valid = [part(0, files) for files in manifest.valid[:1]]
    if len(manifest.train) > 1:
        return [part(index, files) for index, files in enumerate(manifest.train[:2])], valid
    (only,) = manifest.train
    rows = _rows(-(-only.rows // 2), size, batches)
    columns = first_rows(root, manifest.columns, only, 2 * rows)
    return [_slice(columns, 0, rows), *([_slice(columns, rows, 2 * rows)] if only.rows > rows else [])], valid


def _rows(rows: int, size: int, batches: int) -> int:
    """How many of a partition's ``rows`` are taken. The last batch is as short as the partition's last one,
    since a shorter one may be more than a model can bear."""
    return rows if rows <= batches * size else (batches - 1) * size + (rows % size or size)


def _slice(columns: Columns, start: int, stop: int) -> Partition:
    rows = np.arange(start, min(stop, len(next(iter(columns.values())))))
    part = {
        name: column.of(rows) if isinstance(column, Ragged) else column[rows]
        for name, column in columns.items()
    }
    return Partition(int(start > 0), len(rows), part)
