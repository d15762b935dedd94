"""What columns must be before they become a dataset; each function raises ``DataError`` or returns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.manifest import Column
from cerebro_elastic.data.sources import Columns
from cerebro_elastic.errors import DataError, did_you_mean
from cerebro_elastic.words import counted

LABELS = ("y", "label", "labels", "target")
"""Columns that may not hold NaN if none are named."""

_WIDEST = {"b": 1, "i": 8, "u": 8, "f": 8, "c": 16}
"""The kinds of numpy dtypes that torch has, and their widest item in bytes."""


def columns_of(columns: Columns) -> tuple[Column, ...]:
    """The columns as the manifest describes them."""
    return tuple(
        Column(name, column.dtype.newbyteorder("<").str, column.shape[1:]) for name, column in columns.items()
    )


def rows_in(columns: Columns) -> int:
    """How many rows the columns have."""
    return len(next(iter(columns.values())))


def check_columns(columns: Columns, what: str, like: Columns | None = None) -> None:
    """Numeric columns of one length, not empty; of the same names, dtypes and shapes as ``like``."""
    for name, column in columns.items():
        _check_column(name, column, what)
    check_lengths(columns, what)
    if like is not None and columns_of(columns) != columns_of(like):
        raise DataError(
            f"{what} must have the columns of the training data: expected {_told(like)}; "
            f"found {_told(columns)}"
        )


def check_lengths(columns: Columns, what: str) -> None:
    """Columns of one length, not empty."""
    if not columns:
        raise DataError(f"{what} have no column")
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise DataError(f"the columns of {what} must have equally many rows: {told}")
    if not min(lengths.values()):
        raise DataError(f"{what} have no rows")


def _check_column(name: str, column: NDArray[Any], what: str) -> None:
    if column.dtype.itemsize > _WIDEST.get(column.dtype.kind, 0):
        raise DataError(
            f"column {name!r} of {what} has dtype {column.dtype}: only booleans, integers, floats and "
            "complex numbers that torch has can be used; encode it as numbers or leave it out"
        )
    if column.ndim == 0:
        raise DataError(f"column {name!r} of {what} is a single number: it must have an axis of rows")
    if 0 in column.shape[1:]:
        raise DataError(f"column {name!r} of {what} has shape {column.shape}: its rows hold no values")


def _told(columns: Columns) -> str:
    return ", ".join(f"{column.name} {column.dtype}{list(column.shape)}" for column in columns_of(columns))


def check_labels(columns: Columns, labels: tuple[str, ...]) -> None:
    """No NaN in the columns ``labels``, or in those of ``LABELS`` that there are."""
    if unknown := [name for name in labels if name not in columns]:
        raise DataError(
            f"there is no column {unknown[0]!r} for `labels`: {did_you_mean(unknown[0], columns)}"
        )
    for name in labels or [name for name in LABELS if name in columns]:
        if columns[name].dtype.kind in "fc":
            _check_no_nan(name, columns[name])


def _check_no_nan(name: str, column: NDArray[Any]) -> None:
    rows = np.flatnonzero(np.isnan(column).reshape(len(column), -1).any(axis=1))
    if len(rows):
        raise DataError(
            f"label column {name!r} holds NaN in {len(rows)} of {len(column)} rows, first in row {rows[0]}: "
            "remove or fill these rows, or name other columns in `labels`"
        )


def check_split(rows: int, partitions: int, what: str) -> None:
    """At least one partition, and a row for each."""
    if partitions < 1:
        raise DataError(f"{partitions} {what} partitions: there must be at least 1")
    if rows < partitions:
        raise DataError(
            f"{counted(rows, f'{what} row')} for {counted(partitions, 'partition')}: each needs at least "
            f"one; use at most {counted(rows, 'partition')}, or more data"
        )
