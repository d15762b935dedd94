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
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.column_checks import not_finite
from cerebro_elastic.data.manifest import Column, Split
from cerebro_elastic.data.ragged import Arrays, Ragged
from cerebro_elastic.data.row_columns import Value, columns_of_row, common, stacked, value_of
from cerebro_elastic.registry import place_in
from cerebro_elastic.system.files import redacted

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
