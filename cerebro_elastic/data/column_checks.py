"""Checks of columns before they become a dataset; each function raises ``DataError`` or returns."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.manifest import Column
from cerebro_elastic.data.ragged import Columns, Varying
from cerebro_elastic.errors import DataError, brief, did_you_mean
from cerebro_elastic.system.files import CHUNK
from cerebro_elastic.system.words import counted, some_of

FEATURES = "features"
"""The name of the matrix that a ``Selection`` makes."""

_SHOWN = 5
"""The number of rows, or values, that an error names."""

_REPAIR = "give them a value by `fill`, remove these rows, or leave the column out by `columns`"


def leave_out(name: str, names: Iterable[str], key: str = "columns") -> str:
    """How to leave a column out: by the key that names the others."""
    others = [other for other in names if other != name]
    return f"leave it out by `{key}: [{some_of(others, _SHOWN)}]`" if others else f"leave it out by `{key}`"


_WRITTEN = re.compile(r"[-+]?\(?[-+]?(\d{1,3}([.,]\d{3})+|\d+)?[.,]?\d+\)?")
"""A number, maybe with a comma, separators of thousands, or brackets for a minus."""

_WIDEST = {"b": 1, "i": 8, "u": 8, "f": 8, "c": 16}
"""The kinds of numpy dtypes that torch has, and their widest item in bytes."""


def columns_of(columns: Columns) -> tuple[Column, ...]:
    """The columns as the manifest describes them."""
    return tuple(_column(name, column) for name, column in columns.items())


def _column(name: str, column: NDArray[Any] | Varying) -> Column:
    dtype = column.dtype.newbyteorder("<").str
    if isinstance(column, Varying):
        return Column(name, dtype, column.value_shape, column.kind)
    return Column(name, dtype, column.shape[1:])


def rows_in(columns: Columns) -> int:
    """How many rows the columns have."""
    return len(next(iter(columns.values())))


def check_columns(columns: Columns, what: str, like: Columns | None = None) -> None:
    """Numeric columns of one length, not empty; of the same names, dtypes and shapes as ``like``."""
    check_lengths(columns, what)
    for name, column in columns.items():
        check_column(name, column, what, leave_out(name, columns))
    if like is not None and columns_of(columns) != columns_of(like):
        raise DataError(
            f"{what} must have the columns of the training data: expected {_description(like)}; "
            f"found {_description(columns)}"
        )


def check_lengths(columns: Columns, what: str) -> None:
    """Columns of one length, not empty."""
    if not columns:
        raise DataError(f"{what} have no column")
    for name, column in columns.items():
        if not isinstance(column, Varying) and column.ndim == 0:
            raise DataError(f"column {name!r} of {what} is a single number: it must have an axis of rows")
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise DataError(f"the columns of {what} must have equally many rows: {counts}")
    if not min(lengths.values()):
        raise DataError(f"{what} have no rows")


def check_column(
    name: str, column: NDArray[Any] | Varying, what: str, leave: str, *, of_matrix: bool = False
) -> None:
    """Numbers that torch has. ``leave`` is how to leave the column out, ``of_matrix`` whether it is one of
    the ``features``."""
    if isinstance(column, Varying):
        if missing := column.missing:
            raise DataError(
                f"column {name!r} of {what} has no value in {_rows(list(missing), len(column))}, the first "
                f"of them {next(iter(missing.values()))}: complete the samples, or {leave}"
            )
        shape: tuple[int, ...] = (int(column.lengths.sum()), *column.value_shape)
        if not shape[0]:
            raise DataError(f"column {name!r} of {what} is empty in all rows: {leave}")
    else:
        shape = column.shape
    if column.dtype.kind in "OSU":
        if isinstance(column, Varying):
            raise DataError(
                f"column {name!r} of {what} has lists of text, or of values of several types: make them "
                "lists of numbers by a function of columns as the source, join the texts of a row to one, "
                f"which `text: [{name}]` keeps for a `decode` function, or {leave}"
            )
        _refuse_objects(name, column, what, leave, of_matrix)
    if column.dtype.itemsize > _WIDEST.get(column.dtype.kind, 0):
        raise DataError(
            f"column {name!r} of {what} has dtype {column.dtype}: only booleans, integers, floats and "
            f"complex numbers that torch has can be used; encode it as numbers, or {leave}"
        )
    if 0 in shape[1:]:
        raise DataError(f"column {name!r} of {what} has shape {shape}: its rows hold no values")


def check_given(name: str, values: Sequence[Any], what: str) -> None:
    """No value is ``None``, which stands for a missing one in a table."""
    missing = [row for row, value in enumerate(values) if value is None]
    if len(missing) == len(values):
        raise DataError(f"column {name!r} of {what} is empty: leave it out by `columns`")
    if missing:
        raise DataError(f"column {name!r} of {what} has no value in {_rows(missing, len(values))}; {_REPAIR}")


def _refuse_objects(name: str, column: NDArray[Any], what: str, leave: str, of_matrix: bool) -> NoReturn:
    values = column.reshape(-1).tolist()
    if column.ndim == 1:
        check_given(name, values, what)
    texts = {row: value for row, value in enumerate(values) if isinstance(value, str)}
    if len(texts) < len(values):
        raise DataError(
            f"column {name!r} of {what} has dtype {column.dtype}, with values of type "
            f"{type(next(value for value in values if not isinstance(value, str))).__name__}: make it "
            f"numbers, or {leave}"
        )
    odd = {row: value for row, value in texts.items() if not is_number(value)}
    distinct = list(dict.fromkeys(odd.values() or texts.values()))
    shown = ", ".join(brief(repr(value)) for value in distinct[:_SHOWN])
    if mostly_numbers(list(texts.values())):
        raise DataError(
            f"column {name!r} of {what} has numbers, but {shown} in {_rows(list(odd), len(texts))}: write "
            f"plain numbers, such as 1.5; {_REPAIR}; or name it in `encode` if these are classes"
            if odd
            else f"column {name!r} of {what} has numbers as text ({shown}): convert them"
        )
    label, encode = f"predict it by `label: {name}`", f"make it numbers by `encode: [{name}]`"
    text = f"keep it for a `decode` function by `text: [{name}]`"
    if len(distinct) == len(values) > _SHOWN:
        why, ways = f"text, another in each row ({shown}, ...; an identifier?)", [leave, text, encode]
    else:
        why, ways = f"text ({shown}, ...)", [label, encode, text, leave]
    ways = [way for way in ways if not (of_matrix and way in (label, text))]
    raise DataError(f"column {name!r} of {what} has {why}: {', '.join(ways[:-1])}, or {ways[-1]}")


def mostly_numbers(texts: Sequence[str]) -> bool:
    """Whether at least half of the rows, or of the different texts, are numbers: the others probably stand
    for a missing number, or are one in another notation."""
    numbers = {text: is_number(text) or _is_written_number(text) for text in set(texts)}
    return 2 * sum(numbers.values()) >= len(numbers) or 2 * sum(map(numbers.__getitem__, texts)) >= len(texts)


def is_number(text: str) -> bool:
    """Whether the text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_written_number(text: str) -> bool:
    """Whether people read the text as a number: ``$3``, ``1,5``, ``12 %``, ``1 000``, ``(7)``."""
    plain = unicodedata.normalize("NFKC", text).replace("\N{MINUS SIGN}", "-")
    signs = "".join(sign for sign in plain if sign not in " '%" and unicodedata.category(sign) != "Sc")
    return _WRITTEN.fullmatch(signs) is not None


def _rows(rows: Sequence[int], of: int) -> str:
    """``2 of 150 rows (7, 19; the first is 0)``."""
    return f"{len(rows)} of {counted(of, 'row')} ({some_of(rows, _SHOWN)}; the first is 0)"


def _description(columns: Columns) -> str:
    return ", ".join(map(described, columns_of(columns)))


def described(column: Column) -> str:
    """``x <f4[3]``, ``tokens <i8[...]``, ``image bytes``."""
    if column.kind == "bytes":
        return f"{column.name} bytes"
    sizes = ["...", *column.shape] if column.kind == "ragged" else column.shape
    return f"{column.name} {column.dtype}[{', '.join(map(str, sizes))}]"


def check_finite(columns: Columns, names: Sequence[str], what: str, features: Sequence[str] = ()) -> None:
    """No NaN and no infinity in the columns ``names``, or in any if none are named. ``features`` names the
    columns of the matrix ``features``, for messages."""
    if unknown := [name for name in names if name not in columns]:
        raise DataError(
            f"`labels` names {unknown[0]!r}, which is no column: {did_you_mean(unknown[0], columns)}"
        )
    for name in names or columns:
        column, source = columns[name], name
        rows = not_finite(column)
        if len(rows) and not isinstance(column, Varying) and features and name == FEATURES:
            at = int(np.flatnonzero(~np.isfinite(column[rows]).all(axis=0))[0])
            column, source = column[:, at], features[at]
            rows = not_finite(column)
        if len(rows):
            values = next(column.pieces(rows)) if isinstance(column, Varying) else column[rows]
            kind = "NaN" if np.isnan(values).any() else "infinite values"
            raise DataError(
                f"column {source!r} of {what} holds {kind} in {_rows(rows.tolist(), len(column))}; "
                f"{_REPAIR}; or, if the model can handle them, name in `labels` which columns "
                "have none"
            )


def not_finite(column: NDArray[Any] | Varying) -> NDArray[np.int64]:
    """The rows of a column that hold NaN or infinite values."""
    if column.dtype.kind not in "fc":
        return np.empty(0, np.int64)
    if isinstance(column, Varying):
        ends, start = np.cumsum(column.lengths), 0
        rows = []
        for values in column.pieces(np.arange(len(column))):
            inner = tuple(range(1, values.ndim))
            odd = start + np.flatnonzero(~np.isfinite(values).all(axis=inner))
            rows.append(np.searchsorted(ends, odd, "right"))
            start += len(values)
        return np.unique(np.concatenate(rows))
    step = max(1, CHUNK // max(1, column[:1].nbytes))
    return np.concatenate(
        [
            start + np.flatnonzero(~np.isfinite(part).reshape(len(part), -1).all(axis=1))
            for start in range(0, len(column), step)
            for part in [column[start : start + step]]
        ]
    )
