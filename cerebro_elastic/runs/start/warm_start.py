"""Warm starts. A recipe's values from other runs are read once, when its run is opened, and written into the
spec's recipe. Other machines and a replay need only the spec."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cerebro_elastic.core.history.members import by_config, named
from cerebro_elastic.core.model.configs import Config, HParams, Status
from cerebro_elastic.errors import RecipeError, RunError
from cerebro_elastic.recipes import Recipe, load_recipe
from cerebro_elastic.recipes.search import KnownConfig, Start, active
from cerebro_elastic.reporting.results import ConfigResult, why_no_value
from cerebro_elastic.runs.folder import find_run
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.search.criterion import criteria_of
from cerebro_elastic.system.files import here


def resolve_warm_start(recipe: Recipe, home: Path) -> Recipe:
    """The recipe with its named runs replaced by the values taken from them: a checkpoint, and known configs.
    Runs named by id are in the folder ``home``.

    Raises ``RecipeError`` if no such run or config exists, or the recipe cannot continue from it.
    """
    search = recipe.search
    values: dict[str, Any] = {}
    if search.start is not None:
        values["start"] = _start(recipe, search.start, home)
        _check_start(recipe, values["start"])
    if search.known:
        values["known"] = [config for known in search.known for config in _known_configs(recipe, known, home)]
    return load_recipe(recipe, root=recipe.root, search=values) if values else recipe


def _start(recipe: Recipe, start: Start, home: Path) -> Mapping[str, Any]:
    if start.run is None:
        assert start.checkpoint is not None
        local = "://" not in start.checkpoint
        url = str(recipe.root / start.checkpoint) if local else start.checkpoint
        return {**start.model_dump(exclude_none=True), "checkpoint": url}
    where = recipe.source.where(("search", "start"))
    other = _run(start.run, home, where)
    try:
        row = other.config(start.config)
    except RunError as exc:
        raise RecipeError(f"{where}: {exc}") from exc
    if row.best_epoch is None or row.best_checkpoint is None:
        raise RecipeError(
            f"{where}: config {row.config!r} of run {other.run!r} has no epoch with a value of its objective "
            f"{other.recipe.objective.metric!r}, so that none is its best: name another config"
        )
    ref = row.best_checkpoint
    return {
        "checkpoint": here(ref.url),
        "digest": ref.digest,
        "bytes": ref.bytes,
        "epoch": row.best_epoch,
        "hparams": dict(row.hparams),
    }


def _check_start(recipe: Recipe, start: Mapping[str, Any]) -> None:
    where, epoch = recipe.source.where(("search", "start")), start["epoch"]
    _check_names(recipe, start["hparams"], where, "the checkpoint was made with")
    if epoch >= recipe.epochs:
        raise RecipeError(
            f"{where}: the checkpoint has {epoch} epochs behind it, and configs are trained for "
            f"{recipe.epochs} in all, these included: set `epochs` to more than {epoch}"
        )


def _known_configs(recipe: Recipe, known: str | KnownConfig, home: Path) -> Iterator[dict[str, Any]]:
    where = recipe.source.where(("search", "known"))
    if isinstance(known, KnownConfig):
        _check_names(recipe, known.hparams, where, "a known config has")
        yield known.model_dump(mode="json")
        return
    other, comparable = _run(known, home, where), 0
    criteria = criteria_of(recipe)
    metrics = [*(each.metric for each in criteria), *(each.metric for each in criteria[0].constraints)]
    configs = other.view.state.configs
    for row in _comparable(other, configs):
        _check_names(recipe, row.hparams, where, f"{row.config} of run {other.run!r} has")
        finite = [{name: value for name, value in each.items() if math.isfinite(value)} for each in row.curve]
        curve = [{name: each[name] for name in metrics if name in each} for each in finite]
        if any(curve):
            comparable += 1
            yield {
                "hparams": dict(row.hparams),
                "curve": curve,
                "finished": row.status is Status.FINISHED,
                "space": named(configs, row.config)[0].origin.get("space", {}),
            }
    if not comparable:
        raise RecipeError(
            f"{where}: no config of run {other.run!r} has a value of {' and '.join(metrics)}, by which this "
            f"search compares; {why_no_value(metrics[0], other.leaderboard)}"
        )


def _comparable(other: RunResult, configs: Mapping[str, Config]) -> Iterable[ConfigResult]:
    """The configs that did not fail and have no parent, in the order of their creation."""
    for name, (config, *_) in by_config(configs.values()).items():
        child = config.parent is not None and config.parent.config
        if other.configs[name].status is not Status.FAILED and not child:
            yield other.configs[name]


def _run(name: str, home: Path, where: str) -> RunResult:
    try:
        return RunResult(find_run(name, home))
    except RunError as exc:
        raise RecipeError(f"{where}: {exc}") from exc


def _check_names(recipe: Recipe, hparams: HParams, where: str, owner: str) -> None:
    """Raise ``RecipeError`` unless the hyper-parameters are those of the space, if it is not a function."""
    space = recipe.search.space
    if space and set(hparams) != set(here := active(space, hparams)):
        raise RecipeError(
            f"{where}: {owner} the hyper-parameters {', '.join(sorted(hparams))}, the space here has "
            f"{', '.join(sorted(here))}: name the same (a list of one value keeps a hyper-parameter fixed)"
        )
