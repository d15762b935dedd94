"""A user's row function, applied to rows of a source: what a process that prepares data does.

``function(row, split) -> columns`` (Cerebro's ETL; thesis, section 3.2.2): ``row`` has the source's values
by column, ``split`` is ``train``, ``valid`` or ``test``, and ``columns`` has the dataset's values by
column, each a number or an array. Python's and numpy's generators are seeded for each row: the result is
the same wherever, and after whichever rows, a row is made.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.column_checks import check_columns, columns_of, not_finite
from cerebro_elastic.data.manifest import Column, Split
from cerebro_elastic.data.sources import Arrays
from cerebro_elastic.errors import DataError
from cerebro_elastic.files import redacted
from cerebro_elastic.registry import place_in

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

    columns: Arrays
    """The columns of the good rows, in order."""
    bad: tuple[BadRow, ...]
    """The bad rows."""
    first: int | None
    """The number of the first good row, ``None`` if all are bad."""


def make_rows(function: RowFunction, rows: Rows, labels: Sequence[str], seed: int, root: str) -> MadeRows:
    """Apply ``function``. A row for which it raises, or that has a NaN or infinite value, is bad
    (``labels``: only these columns are looked at); rows that differ in
    columns, types or shapes are a ``DataError``. ``root`` is the folder of the user's code, for messages."""
    good: list[tuple[int, Arrays]] = []
    bad: list[BadRow] = []
    for at, number in enumerate(rows.numbers):
        _seed(seed, rows.split, number)
        try:
            values = function({name: column[at] for name, column in rows.columns.items()}, rows.split)
            columns = {name: np.asarray(value) for name, value in dict(values).items()}
            _check_finite(columns, labels)
        except (Exception, SystemExit) as exc:
            why = f"{type(exc).__name__}: {exc} (at {place_in(root, exc)})"
            bad.append(BadRow(rows.split, number, redacted(why)))
        else:
            good.append((number, columns))
    return MadeRows(_stacked(good), tuple(bad), good[0][0] if good else None)


def _seed(seed: int, split: Split, number: int) -> None:
    digest = hashlib.sha256(f"{seed} {split} {number}".encode()).digest()
    random.seed(digest)
    np.random.seed(int.from_bytes(digest[:4]))


def _check_finite(columns: Arrays, labels: Sequence[str]) -> None:
    for name in labels or columns:
        if len(not_finite(columns[name][np.newaxis])):
            raise ValueError(f"{name!r} is NaN or infinite")


def _stacked(rows: Sequence[tuple[int, Arrays]]) -> Arrays:
    if not rows:
        return {}
    first, like = rows[0]
    kind = kind_of_row(like)
    for number, columns in rows:
        check_alike(kind, first, kind_of_row(columns), number)
    stacked: dict[str, NDArray[Any]] = {
        name: np.stack([columns[name] for _, columns in rows]) for name in like
    }
    check_columns(stacked, f"row {first} as the row function makes it")
    return stacked


def kind_of_row(columns: Arrays) -> tuple[Column, ...]:
    """Names, types and shapes of one row."""
    return columns_of({name: value[np.newaxis] for name, value in columns.items()})


def check_alike(kind: Sequence[Column], row: int, other: Sequence[Column], other_row: int) -> None:
    """Raise ``DataError`` unless two rows have the same columns, types and shapes."""
    if tuple(kind) != tuple(other):
        kinds = [
            ", ".join(f"{c.name} {c.dtype}{list(c.shape)}" for c in columns) or "nothing"
            for columns in (kind, other)
        ]
        raise DataError(
            f"the row function makes {kinds[0]} of row {row}, and {kinds[1]} of row {other_row}: it must "
            "make columns of the same names, types and shapes of all rows"
        )
