"""Repairs a source's rows before use: missing values are filled, bad rows are left out, and reported."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.column_checks import rows_in
from cerebro_elastic.data.kinds.byte_ranges import FileRanges
from cerebro_elastic.data.manifest import Split
from cerebro_elastic.data.ragged import Columns, Varying
from cerebro_elastic.errors import DataError, did_you_mean
from cerebro_elastic.system.files import Place, exists, locate, read, translated, write

REPORT = "report.json"
"""Beside the manifest: how many rows were bad, and some of them."""
_SAMPLE = 20
"""Bad rows that the report shows."""
_SHOWN = 3
"""Bad rows that a message shows."""
_EXACT = 2**53
"""Up to here float64 has every whole number."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be used."""

    split: Split
    """The split that it would have gone to."""
    row: int
    """Its number in its source, from 0."""
    why: str
    """The error; of a row function also where in the user's code it was raised."""

    def __str__(self) -> str:
        return f"row {self.row} ({self.split}): {self.why}"


def bad_rows_allowed(limit: float, rows: int) -> int:
    """How many of ``rows`` may be bad: ``limit``, or below 1 the share of them."""
    return int(limit * rows if limit < 1 else limit)


def sample_of(bad: Sequence[BadRow]) -> str:
    """Some bad rows, a line each, for messages."""
    return "\n".join(f"  {row}" for row in bad[:_SHOWN])


def write_report(place: Place, bad: Sequence[BadRow], **entries: Any) -> None:
    """Write the report of a dataset's bad rows, behind other ``entries``."""
    report = {**entries, "bad": len(bad), "sample": [asdict(row) for row in bad[:_SAMPLE]]}
    write(place / REPORT, [(json.dumps(report, indent=1) + "\n").encode()])


def rows_left_out(url: str) -> int:
    """How many bad rows were left out of the dataset at ``url``."""
    with translated(DataError, f"cannot read the dataset {url}"):
        report = locate(url) / REPORT
        return int(json.loads(read(report))["bad"]) if exists(report) else 0


def filled(
    columns: Columns, fill: Mapping[str, str | int | float | bool], like: Columns | None = None
) -> Columns:
    """The columns, where ``None`` and NaN are replaced. Whole numbers stay whole, unless ``like`` has floats.

    Raises ``DataError`` for a column that does not exist, or a value that does not suit it.
    """
    for name in fill:
        if name not in columns:
            raise DataError(f"`fill` names {name!r}, which is no column: {did_you_mean(name, columns)}")
    return {
        name: _filled(name, column, fill[name], None if like is None else like[name])
        if name in fill
        else column
        for name, column in columns.items()
    }


def _filled(
    name: str, column: NDArray[Any] | Varying, value: str | float, like: NDArray[Any] | Varying | None
) -> NDArray[Any]:
    if isinstance(column, Varying):
        raise DataError(f"column {name!r} for `fill` has rows of varying length, which cannot be filled")
    if column.dtype.kind in "OU":
        return _filled_objects(name, column, value)
    if isinstance(value, str):
        raise DataError(
            f"column {name!r} has {column.dtype} numbers, and `fill` gives {value!r}: give a number"
        )
    if column.dtype.kind != "f":
        return column
    numbers = np.where(np.isnan(column), value, column).astype(column.dtype)
    whole = isinstance(value, int) and bool(((numbers == np.round(numbers)) & (abs(numbers) < _EXACT)).all())
    as_floats = like is not None and like.dtype.kind == "f"
    return numbers.astype(np.int64) if whole and not as_floats else numbers


def _filled_objects(name: str, column: NDArray[Any], value: str | float) -> NDArray[Any]:
    given = column.reshape(-1).tolist()
    kinds = {type(other) for other in given if other is not None}
    if kinds and type(value) not in kinds:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise DataError(
            f"column {name!r} has values of type {names}, and `fill` gives {value!r}: give one of it"
        )
    values = [value if other is None else other for other in given]
    dtype = object if str in kinds or isinstance(value, str) else None
    return np.array(values, dtype).reshape(column.shape)


class BadPictures:
    """The rows of a source whose pictures cannot be opened, which are left out.

    Args:
        limit: How many may be bad; below 1, the share of them that may.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self.rows: list[BadRow] = []
        """The bad rows that were found."""

    def without(self, columns: Columns, split: Split) -> Columns:
        """The columns without bad rows. Raises ``DataError`` if more are bad than may be."""
        ranges = {name: column for name, column in columns.items() if isinstance(column, FileRanges)}
        if not ranges and not self._limit:
            return columns
        if not ranges:
            raise DataError(
                "`max_bad_rows` (--bad) is about pictures in folders or tar archives, and about rows that a "
                "function makes (--rows): there are none; leave it out"
            )
        bad: dict[int, str] = {}
        for name, column in ranges.items():
            for row, why in column.bad_pictures().items():
                bad.setdefault(row, f"{column.keys[row]} ({name}): {why}")
        total = rows_in(columns)
        self.rows += [BadRow(split, row, bad[row]) for row in sorted(bad)]
        if len(self.rows) > (allowed := bad_rows_allowed(self._limit, total)):
            raise DataError(
                f"{len(self.rows)} of {total} rows have a picture that cannot be opened, {allowed} may:\n"
                f"{sample_of(self.rows)}\nreplace or remove these, or allow more by `max_bad_rows` (--bad)"
            )
        if not bad:
            return columns
        good = np.setdiff1d(np.arange(total), np.array(sorted(bad)))
        return {
            name: column.of(good) if isinstance(column, Varying) else column[good]
            for name, column in columns.items()
        }
