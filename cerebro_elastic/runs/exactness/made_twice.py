"""Makes a batch of a recipe's data twice before its run starts, in two forks of this process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.data.manifest import Manifest
from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.data.reading.made_twice import BATCHES, differing
from cerebro_elastic.data.reading.partition import Partition
from cerebro_elastic.data.shards.first_rows import first_rows
from cerebro_elastic.errors import CerebroError
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.registry import forget_modules
from cerebro_elastic.runs.exactness.check_configs import why_not_forked
from cerebro_elastic.system.files import locate
from cerebro_elastic.system.subprocess_call import ChildDied, call_in_fork
from cerebro_elastic.training.unit_runner import loader_settings, make_task, use_threads

_ROWS = 4
"""The most rows to make."""
_SECONDS = 120.0


def differing_of(recipe: Recipe, point: HParams, data: str, manifest: Manifest) -> Mapping[str, str]:
    """The parts of the dataset at ``data`` that differ when made again for the config ``point``
    (``Spec.differing``)."""
    if why := why_not_forked(recipe):
        return {BATCHES: f"no batch was made twice before the start, so none is kept or shared: {why}"}
    use_threads(recipe, make_task(recipe), 1)  # a pool of threads would not be there in forks
    loader = loader_settings(recipe).with_hparams(point)
    rows = min(_ROWS, point.get("batch_size", loader.batch_size))
    splits = {True: manifest.train, False: manifest.valid}
    partitions = {
        training: Partition(0, len(columns[next(iter(columns))]), columns, name=f"{data}, the first rows")
        for training, files in splits.items()
        if files and (columns := first_rows(locate(data), manifest, files[0], 2 * rows))
    }

    def in_fork(make: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        return call_in_fork(make, _SECONDS)

    def anew() -> LoaderSettings:
        modules = dict(sys.modules)
        forget_modules()
        try:
            return loader_settings(recipe).with_hparams(point)
        except CerebroError:  # its definitions may be registered only once
            sys.modules.update(modules)
            return loader

    try:
        return differing(partitions, loader, anew, rows, in_fork)
    except ChildDied as died:
        return {BATCHES: f"no batch could be made twice before the start, so none is kept or shared: {died}"}
