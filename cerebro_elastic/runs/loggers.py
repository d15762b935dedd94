"""The loggers of a run, as its recipe names them: TensorBoard unless it says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cerebro_elastic.errors import MissingExtra
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.registry import load, missing
from cerebro_elastic.report.logged import Logger
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.remote_loggers import RemoteLoggers

TENSORBOARD = "tensorboard"


def loggers_of(recipe: Recipe, folder: RunFolder, *, opener: bool) -> Mapping[str, Logger]:
    """The loggers, by name. TensorBoard's files are written on every machine that keeps the run's record,
    into its ``folder``; Lightning's loggers by the ``opener`` of the run alone, for they may write to one
    place."""
    absent = missing("cerebro.loggers", TENSORBOARD)
    named = recipe.loggers if recipe.loggers is not None else () if absent else (TENSORBOARD,)
    found: dict[str, Logger] = {}
    if TENSORBOARD in named:
        if absent:
            raise MissingExtra(f"the recipe's `loggers` name tensorboard, which is not installed: {absent}")
        found[TENSORBOARD] = load("cerebro.loggers", TENSORBOARD)(folder.tensorboard)
    if opener and (others := lightnings(recipe)):
        found["lightning"] = RemoteLoggers(others, folder.run, recipe.root, folder.path / "loggers")
    return found


def lightnings(recipe: Recipe) -> list[str | Mapping[str, Any]]:
    """Those of the recipe's loggers that are Lightning's."""
    return [logger for logger in recipe.loggers or () if logger != TENSORBOARD]
