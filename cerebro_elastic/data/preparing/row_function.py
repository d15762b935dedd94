"""A user's row function, applied to rows of a source: what a process that prepares data does.

``function(row, split) -> columns`` (Cerebro's ETL; thesis, section 3.2.2): ``row`` has the source's values
by column, ``split`` is ``train``, ``valid`` or ``test``, and ``columns`` has the dataset's values by
column: each a number, an array, whose first axis may vary in length from row to row, or ``bytes``. Python's
and numpy's generators are seeded for each row: the result is the same wherever, and after whichever rows, a
row is made.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.manifest import Column, Split
from cerebro_elastic.data.preparing.column_checks import check_column, described, not_finite
from cerebro_elastic.data.ragged import Arrays, Ragged, encoded, sequences
from cerebro_elastic.errors import DataError
from cerebro_elastic.registry import place_in
from cerebro_elastic.system.files import redacted

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


RowFunction: TypeAlias = Callable[[Mapping[str, Any], Split], Mapping[str, Any]]


REPORT = "report.json"
"""Beside the manifest: how many rows were bad, and some of them."""
SAMPLE = 20
"""Bad rows that the report shows."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a source, for one split."""

    split: Split
    """The split that they go to."""
    numbers: tuple[int, ...]
    """Their numbers in the source, from 0."""
    columns: Arrays
    """Their values by column, in the order of ``numbers``."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row of which the function made nothing."""

    split: Split
    """The split that it would have gone to."""
    row: int
    """Its number in its source, from 0."""
    why: str
    """The function's error, and where in the user's code it was raised."""

    def __str__(self) -> str:
        return f"row {self.row} ({self.split}): {self.why}"


@dataclass(frozen=True, slots=True)
class MadeRows:
    """What the function made of some rows."""

    columns: Mapping[str, NDArray[Any] | Ragged]
    """The columns of the good rows, in order."""
    kinds: tuple[Column, ...]
    """What they are; a column of sequences that are all empty has ``rows`` of shape ``(0, ...)``."""
    bad: tuple[BadRow, ...]
    first: int | None
    """The number of the first good row, ``None`` if all are bad."""


def make_rows(function: RowFunction, rows: Rows, labels: Sequence[str], seed: int, root: str) -> MadeRows:
    """Apply ``function``. A row for which it raises, or that has a NaN or infinite value, is bad
    (``labels``: only these columns are looked at); rows that differ in
    columns, types or more than lengths are a ``DataError``. ``root`` is the folder of the user's code, for
    messages."""
    good: list[tuple[int, Mapping[str, Value]]] = []
    bad: list[BadRow] = []
    for at, number in enumerate(rows.numbers):
        _seed(seed, rows.split, number)
        try:
            values = function({name: column[at] for name, column in rows.columns.items()}, rows.split)
            columns: dict[str, Value] = {name: value_of(value) for name, value in dict(values).items()}
            _check_finite(columns, labels)
        except (Exception, SystemExit) as exc:
            why = f"{type(exc).__name__}: {exc} (at {place_in(root, exc)})"
            bad.append(BadRow(rows.split, number, redacted(why)))
        else:
            good.append((number, columns))
    if not good:
        return MadeRows({}, (), tuple(bad), None)
    first, like = good[0]
    kinds = columns_of_row(like)
    for number, row in good:
        kinds = common(kinds, first, columns_of_row(row), number)
    what = f"row {first} as the row function makes it"
    columns_made = {name: stacked([row[name] for _, row in good], name, what) for name in like}
    return MadeRows(columns_made, kinds, tuple(bad), first)


def _seed(seed: int, split: Split, number: int) -> None:
    digest = hashlib.sha256(f"{seed} {split} {number}".encode()).digest()
    random.seed(digest)
    np.random.seed(int.from_bytes(digest[:4]))


def _check_finite(columns: Mapping[str, Value], labels: Sequence[str]) -> None:
    for name in labels or columns:
        value = columns[name]
        if not isinstance(value, bytes) and len(not_finite(value[np.newaxis])):
            raise ValueError(f"{name!r} is NaN or infinite")
