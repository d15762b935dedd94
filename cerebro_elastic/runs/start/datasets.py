"""Datasets by the names that recipes and the command line use: paths, URLs, or a user's function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from cerebro_elastic.data.manifest import Manifest
from cerebro_elastic.data.prepare import prepare
from cerebro_elastic.data.prepare_rows import RowProgress, prepare_rows
from cerebro_elastic.data.selection import Selection
from cerebro_elastic.data.shared_jobs import MachineShare
from cerebro_elastic.data.sources import Source
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.recipes.fields import percentage
from cerebro_elastic.registry import import_object, is_reference


def prepare_dataset(
    source: str,
    destination: str,
    *,
    partitions: int,
    seed: int,
    valid: float | str,
    labels: Sequence[str],
    root: Path,
    test: float | str = 0.0,
    selection: Selection = Selection(),  # noqa: B008  # frozen
) -> Manifest:
    """``data.prepare`` with its sources by name: a path (relative to ``root``), a URL, or a function
    ``module:name`` that is imported from ``root``. ``valid`` and ``test`` are fractions or such names."""
    return prepare(
        _source(source, root),
        destination,
        partitions=partitions,
        seed=seed,
        valid=_fraction_or_source(valid, root),
        test=_fraction_or_source(test, root),
        labels=tuple(labels),
        selection=selection,
    )


def prepare_dataset_rows(
    source: str,
    function: str,
    destination: str,
    *,
    partitions: int,
    seed: int,
    valid: float | str,
    test: float | str,
    labels: Sequence[str],
    root: Path,
    workers: int | None,
    bad: float,
    share: MachineShare,
    show: Callable[[RowProgress], None],
) -> Manifest:
    """The same for ``data.prepare_rows``."""
    return prepare_rows(
        _source(source, root),
        function,
        destination,
        root=root,
        partitions=partitions,
        seed=seed,
        valid=_fraction_or_source(valid, root),
        test=_fraction_or_source(test, root),
        labels=labels,
        workers=workers,
        bad=bad,
        share=share,
        show=show,
    )


def prepare_recipe(recipe: Recipe, destination: str) -> None:
    """Prepare the recipe's source at ``destination``."""
    data = recipe.data
    assert data.source is not None
    prepare_dataset(
        data.source,
        destination,
        partitions=data.partitions,
        seed=recipe.seed,
        valid=data.valid,
        labels=data.labels,
        root=recipe.root,
        selection=Selection(data.columns, data.features, data.label, data.encode),
    )


def import_sources(recipe: Recipe) -> None:
    """Import the recipe's functions that return data, without calling them."""
    for name in (recipe.data.source, recipe.data.valid):
        if isinstance(name, str) and is_reference(name):
            import_object(name, recipe.root)


def _fraction_or_source(valid: float | str, root: Path) -> float | Source:
    share = percentage(str(valid))
    try:
        return float(valid) if share is None else share
    except ValueError:
        return _source(str(valid), root)


def _source(name: str, root: Path) -> Source:
    if is_reference(name):
        function: Source = import_object(name, root)
        return function
    return name if "://" in name else str(root / name)
