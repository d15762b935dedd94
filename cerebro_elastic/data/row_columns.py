"""The columns that rows make together, where each row was made by itself: sequences may vary in length, and
encoded values are bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.column_checks import check_column, described
from cerebro_elastic.data.manifest import Column
from cerebro_elastic.data.ragged import Ragged, encoded, sequences
from cerebro_elastic.errors import DataError

Value: TypeAlias = NDArray[Any] | bytes
"""A row's value of one column."""


def value_of(value: Any) -> Value:
    """What a row function returns for one column. Raises ``ValueError`` for what is no array."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    return np.asarray(value)


def columns_of_row(row: Mapping[str, Value]) -> tuple[Column, ...]:
    """The columns of one row."""
    return tuple(
        Column(name, "|u1", (), "bytes")
        if isinstance(value, bytes)
        else Column(name, value.dtype.newbyteorder("<").str, value.shape)
        for name, value in row.items()
    )


def common(
    columns: Sequence[Column], row: int, others: Sequence[Column], other_row: int
) -> tuple[Column, ...]:
    """The columns that hold the rows of both. Raises ``DataError`` if there are none.

    Args:
        columns: What is made of ``row``, and maybe of others.
        row: Its number in the source, for messages.
        others: What is made of ``other_row``, and maybe of others.
        other_row: Its number.
    """
    both = [_common(one, other) for one, other in zip(columns, others, strict=False)]
    if len(columns) == len(others) and all(both):
        return tuple(column for column in both if column)
    one, other = (", ".join(map(described, kinds)) or "nothing" for kinds in (columns, others))
    raise DataError(
        f"the row function makes {one} of row {row}, and {other} of row {other_row}: it must make columns "
        "of the same names and types of all rows, and shapes may differ in the length of the first axis only"
    )


def _common(one: Column, other: Column) -> Column | None:
    if one == other:
        return one
    sequences = [_as_ragged(column) for column in (one, other)]
    if one.name != other.name or None in sequences:
        return None
    if _is_empty(other):  # it fits to all
        return one if _is_empty(one) else sequences[0]
    if _is_empty(one):
        return sequences[1]
    return sequences[0] if sequences[0] == sequences[1] else None


def _as_ragged(column: Column) -> Column | None:
    if column.kind == "rows" and column.shape:
        return replace(column, shape=column.shape[1:], kind="ragged")
    return column if column.kind == "ragged" else None


def _is_empty(column: Column) -> bool:
    return column.kind == "rows" and column.shape[:1] == (0,)


def check_not_empty(columns: Sequence[Column]) -> None:
    """Raise ``DataError`` for a column that has no value in any row."""
    if names := [column.name for column in columns if _is_empty(column)]:
        raise DataError(f"the row function makes empty sequences of all rows for column {names[0]!r}")


def stacked(values: Sequence[Value], name: str, what: str) -> NDArray[Any] | Ragged:
    """The column of these values, of which ``common`` has approved. It may have sequences that are all empty.
    Raises ``DataError`` for values that torch does not have; ``what`` names the rows."""
    arrays = [value for value in values if not isinstance(value, bytes)]
    if not arrays:
        return encoded(values, name)
    if arrays[0].dtype.kind == "U":
        raise DataError(
            f"column {name!r} of {what} has text: return numbers, or its bytes, text.encode(), for a "
            "`decode` function"
        )
    shapes = {array.shape for array in arrays}
    column = np.stack(arrays) if len(shapes) == 1 else sequences(arrays, name)
    if any(shape[:1] != (0,) for shape in shapes):
        check_column(name, column, what)
    return column
