"""Datasets of Ray Data as a source of ``prepare``: ``ray.data:module:function``, ``ray.data:parquet:URL``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import ray.data

from cerebro_elastic.extending.data import Columns, GrowingColumn, as_column
from cerebro_elastic.extending.errors import DataError, TaskError, did_you_mean
from cerebro_elastic.extending.recipes import import_object, is_reference

Reader: TypeAlias = Callable[[str], ray.data.Dataset]

_READERS: dict[str, Reader] = {
    "csv": ray.data.read_csv,
    "json": ray.data.read_json,
    "parquet": ray.data.read_parquet,
    "tfrecords": ray.data.read_tfrecords,
    "webdataset": ray.data.read_webdataset,
}
_RULE = "give ray.data:module:function, a function that returns a ray.data.Dataset, or ray.data:READER:URL"
_IN_MEMORY = 64 << 20
"""Bytes of a growing column that are kept in memory; a larger column is in a temporary file."""


def read(name: str, root: Path) -> Callable[[], Columns]:
    """The source ``name``, without the prefix ``ray.data:``. Its rows are read on the first call."""
    kind, _, place = name.partition(":")
    if kind in _READERS and place:
        reader = _READERS[kind]
        url = place if "://" in place else str(root / place)
        return lambda: columns_of(reader(url), f"ray.data:{name}")
    if not is_reference(name):
        raise DataError(
            f"the source is 'ray.data:{name}': {_RULE}; of readers {did_you_mean(kind, _READERS)}"
        )
    try:
        function = import_object(name, root)
    except TaskError as exc:
        raise DataError(f"the source is 'ray.data:{name}': {exc}; {_RULE}") from exc
    if not callable(function):
        raise DataError(f"the source 'ray.data:{name}' is a {type(function).__name__}: {_RULE}")
    return lambda: columns_of(function(), f"ray.data:{name}")


def columns_of(dataset: Any, name: str) -> Columns:
    """The rows of a dataset in its order, whatever the order in which Ray finishes its blocks.

    Ray reads and maps the blocks in parallel; they are appended in order.
    """
    if not isinstance(dataset, ray.data.Dataset):
        raise DataError(f"{name} returned a {type(dataset).__name__}: it must return a ray.data.Dataset")
    growing: dict[str, GrowingColumn] = {}
    for batch in _blocks(dataset, name):
        if not growing:
            growing = {column: GrowingColumn(column, _IN_MEMORY) for column in batch}
        if set(batch) != set(growing):
            raise DataError(
                f"{name} has a block with the columns {', '.join(batch)}, and before {', '.join(growing)}: "
                "all rows must have the same"
            )
        for column, values in batch.items():
            block: Any = as_column(column, values)  # an array, or sequences
            growing[column].append(block)
    if not growing:
        raise DataError(f"{name} has no rows")
    return {column: values.whole() for column, values in growing.items()}


def _blocks(dataset: ray.data.Dataset, name: str) -> Iterator[dict[str, Any]]:
    """The blocks in the dataset's order. Ray's errors have the user's among them."""
    dataset.context.execution_options.preserve_order = True
    dataset.context.enable_progress_bars = False
    try:
        for batch in dataset.iter_batches(batch_size=None, batch_format="numpy"):
            if batch and len(next(iter(batch.values()))):
                yield batch
    except ray.exceptions.RayError as exc:
        raise DataError(
            f"{name} cannot be read: {_first_error(exc)}; correct the dataset's functions"
        ) from exc


def _first_error(error: BaseException) -> str:
    """The user's error: the first one in Ray's report; it is not the ``__cause__`` of Ray's own."""
    named = re.search(r"^[\w.]*(Error|Exception): .*$", str(error), re.MULTILINE)
    return named[0] if named is not None else type(error).__name__
