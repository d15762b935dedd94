"""``cerebro prepare``: datasets from paths, URLs, or a user's function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial, update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cerebro_elastic.data.manifest import Manifest, Split
from cerebro_elastic.data.preparing.from_columns import prepare_columns
from cerebro_elastic.data.preparing.from_rows import RowProgress, prepare_rows
from cerebro_elastic.data.preparing.settings import PrepareSettings, prepare_settings
from cerebro_elastic.data.preparing.sources import Source
from cerebro_elastic.data.preparing.splits import Sources
from cerebro_elastic.data.ragged import Columns
from cerebro_elastic.errors import DataError, RecipeError
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.recipes.data import Preparation
from cerebro_elastic.registry import import_object, is_reference
from cerebro_elastic.system import arguments
from cerebro_elastic.system.files import understood

if TYPE_CHECKING:
    from cerebro_elastic.data.reading.datasets import NumberedDatasets


def prepare(
    source: str | Path | Callable[[], Mapping[str, Any]],
    destination: str | Path,
    *,
    show: Callable[[RowProgress], None] = lambda _progress: None,
    root: str | Path | None = None,
    **settings: Any,
) -> Manifest:
    """Shuffle a dataset once and write it as partitions. A recipe's ``data.url`` names the result.

    The same input gives the same bytes. A destination that has this very dataset is left unchanged.

    Args:
        source: A path or URL of arrays, tables, pictures or tar archives, or a function that returns
            ``{column: array}``, itself or as ``module:name``.
        destination: The folder or URL of the dataset.
        show: It is called with the progress of making rows.
        root: The folder of modules and relative paths, by default the working directory.
        **settings: The keys of a recipe's ``data`` from ``partitions`` to ``max_bad_rows``, and ``seed``,
            ``test``, ``count_classes``, ``rows``, ``workers`` and ``share``: the options of ``cerebro
            prepare``.

    Returns:
        The dataset's manifest.

    Raises:
        DataError: The input cannot be used, or the destination has another dataset.
        TaskError: The function cannot be imported.
        DiskFull: No space is left.

    Example:
        >>> import numpy
        >>> rng = numpy.random.default_rng(0)
        >>> columns = {"x": rng.normal(size=(100, 4)), "y": numpy.arange(100) % 2}
        >>> manifest = prepare(lambda: columns, "prepared", partitions=4, valid=0.2)
        >>> [partition.rows for partition in manifest.train]
        [20, 20, 20, 20]
    """
    folder = Path(root) if root is not None else Path.cwd()
    return prepare_dataset(source, destination, prepare_settings(settings), folder, show)


def prepare_dataset(
    source: str | Path | Callable[[], Mapping[str, Any]],
    destination: str | Path,
    settings: PrepareSettings,
    root: Path,
    show: Callable[[RowProgress], None] = lambda _progress: None,
) -> Manifest:
    """``prepare`` with checked settings."""

    def held_out(named: float | str | None) -> float | Source:
        return _source(named, root) if isinstance(named, str) else named or 0.0

    sources = Sources(_source(source, root), held_out(settings.valid), held_out(settings.test))
    if settings.rows is None:
        return prepare_columns(sources, str(destination), settings)
    return prepare_rows(sources, str(destination), settings, root=root, show=show)


def prepare_recipe(recipe: Recipe, destination: str) -> None:
    """Prepare the recipe's source, or the rows of its dataset, at ``destination``."""
    source = recipe.data.source or _rows_written(recipe)
    settings = _settings(recipe, Preparation.model_fields, count_classes=_class_column(recipe))
    prepare_dataset(source, destination, settings, recipe.root)


def open_recipe(recipe: Recipe, destination: str) -> str:
    """List, count and deal the recipe's shards, and return the URL of the resulting dataset, below
    ``destination``."""
    from cerebro_elastic.data.shards.opening import ShardSources, open_shards

    def place(named: str) -> str:
        return named if "://" in named else str(recipe.root / understood(named))

    def held_out(named: float | str | None) -> float | str:
        return place(named) if isinstance(named, str) else named or 0.0

    data = recipe.data
    assert data.shards is not None
    sources = ShardSources(place(data.shards), held_out(data.valid), held_out(data.test))
    url, _ = open_shards(sources, destination, _settings(recipe, Preparation.model_fields))
    return url


def _settings(recipe: Recipe, keys: Iterable[str], **settings: Any) -> PrepareSettings:
    """The recipe's settings for ``keys``, and others."""
    data = {key: getattr(recipe.data, key) for key in keys}
    if recipe.folds and (data.get("stratify") or data.get("split_by")):
        settings["folds"] = recipe.folds
    return PrepareSettings(**{**data, "seed": recipe.seed, **settings})


def _rows_written(recipe: Recipe) -> Callable[[], Mapping[str, Any]]:
    """A function that returns the dataset whose rows should be written."""
    assert recipe.data.dataset is not None
    function = import_object(recipe.data.dataset, recipe.root)
    missing = sorted(arguments.required(function) - recipe.data.args.keys())
    if missing:
        raise DataError(
            f"{recipe.data.dataset} needs {', '.join(missing)}: give it in data.args (with `materialize` it "
            "cannot be searched)"
        )
    return update_wrapper(partial(function, **recipe.data.args), function)


def _class_column(recipe: Recipe) -> str | None:
    """The column whose classes the recipe's task weighs, if it is named."""
    weights = getattr(recipe.task, "class_weights", None)
    if weights != "balanced":
        return recipe.data.label if weights else None
    column = recipe.data.label or recipe.data.stratify
    if column is None:
        raise RecipeError(
            "task.class_weights is 'balanced': name the column of classes as data.label or data.stratify, or "
            "give a list of weights"
        )
    return column


def deal_dataset(recipe: Recipe, datasets: NumberedDatasets, destination: str) -> None:
    """Deal the numbers of the rows of the recipe's dataset to partitions, and write them at
    ``destination``."""
    from cerebro_elastic.data.manifest import ROW

    data = recipe.data
    columns = datasets.columns(bucket=data.bucket, stratify=data.stratify, split_by=data.split_by)
    sources = Sources(
        lambda: columns["train"],
        # A data module validates and tests with its own loaders.
        _rows_of("valid", columns, data.valid if data.dataset else 0.0),
        _rows_of("test", columns, data.test or 0.0),
    )
    prepare_columns(
        sources,
        destination,
        _settings(
            recipe,
            ("partitions", "valid_partitions", "stratify", "split_by"),
            columns=[ROW] if data.bucket is None else [ROW, data.bucket],
        ),
        datasets=datasets.lengths,
        loader={key: value for key, value in datasets.loader.items() if key in ("batch_size", "drop_last")},
    )


def _rows_of(split: Split, columns: Mapping[Split, Columns], share: float | str) -> float | Source:
    """The rows of the user's own dataset for ``split``, else a share of those for training."""
    if split not in columns:
        return float(share)
    if share and split == "test":
        raise DataError("the `dataset` returns test data itself, and `test` names a share: leave one out")
    return lambda: columns[split]


def import_sources(recipe: Recipe) -> None:
    """Import the recipe's functions that return data, without calling them."""
    for name in (recipe.data.source, recipe.data.valid, recipe.data.test):
        if isinstance(name, str) and is_reference(name):
            import_object(name, recipe.root)


def _source(source: str | Path | Callable[[], Mapping[str, Any]], root: Path) -> Source:
    if callable(source):
        return source
    name = str(source)
    if is_reference(name):
        function: Source = import_object(name, root)
        return function
    return name if "://" in name else str(root / understood(name))
