"""``cerebro prepare``: datasets from paths, URLs, or a user's function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, update_wrapper
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cerebro_elastic.data.manifest import Manifest, Split
from cerebro_elastic.data.mending import Fill
from cerebro_elastic.data.prepare import prepare as _prepare_columns
from cerebro_elastic.data.prepare_rows import RowProgress, prepare_rows
from cerebro_elastic.data.selection import Selection
from cerebro_elastic.data.shared_jobs import MachineShare
from cerebro_elastic.data.sources import Columns, Source
from cerebro_elastic.data.split_rules import SplitRules
from cerebro_elastic.errors import DataError, RecipeError
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.recipes.fields import percentage
from cerebro_elastic.registry import import_object, is_reference, load, names
from cerebro_elastic.system import arguments

if TYPE_CHECKING:
    from cerebro_elastic.data.datasets import NumberedDatasets


def prepare(
    source: str | Path | Callable[[], Mapping[str, Any]],
    destination: str | Path,
    *,
    partitions: int,
    seed: int = 0,
    valid: float | str | Path = 0.2,
    test: float | str | Path = 0.0,
    labels: Sequence[str] = (),
    columns: Sequence[str] | None = None,
    features: Sequence[str] | None = None,
    label: str | None = None,
    encode: Sequence[str] | None = None,
    stratify: str | None = None,
    split_by: str | None = None,
    sample_weight: str | None = None,
    count_classes: str | None = None,
    text: Sequence[str] = (),
    fill: Fill = MappingProxyType({}),
    rows: str | None = None,
    workers: int | None = None,
    bad: float = 0,
    share: MachineShare = MachineShare(),  # noqa: B008  # frozen
    show: Callable[[RowProgress], None] = lambda _progress: None,
    root: str | Path | None = None,
) -> Manifest:
    """Shuffle a dataset once and write it as partitions. A recipe's ``data.url`` names the result.

    The same input gives the same bytes. A destination that has this very dataset is kept as it is.

    Args:
        source: A path or URL of arrays, tables, pictures or tar archives, or a function that returns
            ``{column: array}``, itself or as ``module:name``.
        destination: The folder or URL of the dataset.
        partitions: Number of training partitions.
        seed: Seed of the shuffle.
        valid: Share of the rows for validation, or a source of its own.
        test: The same for a test after the run.
        labels: The columns that may hold no NaN, by default all.
        columns: The columns that are used, by default all.
        features: Columns that become one matrix.
        label: The column to predict; the features are all others, or as named.
        encode: Columns of text or whole numbers that become codes.
        stratify: A column of classes: each split has of each class its share.
        split_by: A column of groups: all rows of a group are in one split.
        sample_weight: A column that weighs the loss of each row.
        count_classes: A column of class numbers: the manifest gets the training rows of each class.
        text: Columns of text that are kept as bytes of UTF-8.
        fill: By column, the value of rows that have none.
        rows: ``module:function``, ``(row, split) -> columns``, that makes the dataset's rows.
        workers: Processes that make rows, by default one for each core.
        bad: How many rows may fail, or have a picture that cannot be opened: a number, or below 1 a share.
        share: Which part of the rows is this machine's, if several make them.
        show: It is called with the progress of making rows.
        root: The folder of modules and relative paths, by default the working directory.

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
    sources = (_source(source, folder), _fraction_or_source(valid, folder), _fraction_or_source(test, folder))
    rules = SplitRules(stratify, split_by)
    if rows is None:
        return _prepare_columns(
            sources[0],
            str(destination),
            partitions=partitions,
            seed=seed,
            valid=sources[1],
            test=sources[2],
            labels=tuple(labels),
            selection=Selection(columns, features, label, encode, split_by, sample_weight, text),
            rules=rules,
            count_classes=count_classes,
            fill=fill,
            max_bad_rows=bad,
        )
    return prepare_rows(
        sources[0],
        rows,
        str(destination),
        root=folder,
        partitions=partitions,
        seed=seed,
        valid=sources[1],
        test=sources[2],
        labels=labels,
        workers=workers,
        bad=bad,
        share=share,
        show=show,
        rules=rules,
    )


def prepare_recipe(recipe: Recipe, destination: str) -> None:
    """Prepare the recipe's source, or the rows of its dataset, at ``destination``."""
    data = recipe.data
    prepare(
        data.source or _rows_written(recipe),
        destination,
        partitions=data.partitions,
        seed=recipe.seed,
        valid=data.valid,
        labels=data.labels,
        root=recipe.root,
        columns=data.columns,
        features=data.features,
        label=data.label,
        encode=data.encode,
        stratify=data.stratify,
        split_by=data.split_by,
        sample_weight=data.sample_weight,
        count_classes=_class_column(recipe),
        text=data.text,
        fill=data.fill,
        bad=data.max_bad_rows,
    )


def _rows_written(recipe: Recipe) -> Callable[[], Mapping[str, Any]]:
    """What returns the dataset whose rows are to be written."""
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
    from cerebro_elastic.data.dataset_factory import ROW

    data = recipe.data
    columns = datasets.columns(bucket=data.bucket, stratify=data.stratify, split_by=data.split_by)
    _prepare_columns(
        lambda: columns["train"],
        destination,
        partitions=data.partitions,
        seed=recipe.seed,
        # A data module validates with its own loaders.
        valid=_rows_of("valid", columns, data.valid if data.dataset else 0.0),
        test=_rows_of("test", columns, 0.0),
        selection=Selection([ROW] if data.bucket is None else [ROW, data.bucket]),
        rules=SplitRules(data.stratify, data.split_by),
        datasets=datasets.lengths,
        loader={key: value for key, value in datasets.loader.items() if key in ("batch_size", "drop_last")},
    )


def _rows_of(split: Split, columns: Mapping[Split, Columns], share: float | str) -> float | Source:
    """The rows of the user's own dataset for ``split``, else a share of those for training."""
    if split not in columns:
        return float(share)
    return lambda: columns[split]


def import_sources(recipe: Recipe) -> None:
    """Import the recipe's functions that return data, without calling them."""
    for name in (recipe.data.source, recipe.data.valid):
        if isinstance(name, str) and is_reference(name):
            import_object(name, recipe.root)


def _fraction_or_source(valid: float | str | Path, root: Path) -> float | Source:
    text = str(valid)
    share = percentage(text)
    try:
        return float(text) if share is None else share
    except ValueError:
        return _source(text, root)


def _source(source: str | Path | Callable[[], Mapping[str, Any]], root: Path) -> Source:
    if callable(source):
        return source
    name = str(source)
    kind, _, rest = name.partition(":")
    if kind in names("cerebro.sources"):
        read: Callable[[str, Path], Source] = load("cerebro.sources", kind)
        return read(rest, root)
    if is_reference(name):
        function: Source = import_object(name, root)
        return function
    return name if "://" in name else str(root / name)
