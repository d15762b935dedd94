"""The worker processes of ``prepare_rows``: a user's row function makes chunks of columns, which are joined
to partitions.

``function(row, split) -> columns`` (Cerebro's ETL; thesis, section 3.2.2): ``row`` has the source's values
by column, ``split`` is ``train``, ``valid`` or ``test``, and ``columns`` has the dataset's values by
column: each a number, an array, whose first axis may vary in length from row to row, or ``bytes``. Python's
and numpy's generators are seeded for each row: the result is the same wherever, and after whichever rows, a
row is made.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.column_checks import check_column, described, not_finite
from cerebro_elastic.data.manifest import Column, PartitionFiles, Split
from cerebro_elastic.data.preparing.column_files import ColumnData
from cerebro_elastic.data.preparing.defects import BadRow
from cerebro_elastic.data.preparing.shared_jobs import JobRecord, record_of
from cerebro_elastic.data.ragged import Arrays, Ragged, encoded, of_one_length, sequences
from cerebro_elastic.errors import DataError
from cerebro_elastic.registry import import_object, place_in
from cerebro_elastic.system.files import Place, locate, open_buffered, redacted, translated, write
from cerebro_elastic.system.process import die_with_parent

Value: TypeAlias = NDArray[Any] | bytes
"""A row's value of one column."""


def value_of(value: Any) -> Value:
    """A row function's value for one column. Raises ``ValueError`` for a value that is no array."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    return np.asarray(value)


def columns_of_row(row: Mapping[str, Value]) -> tuple[Column, ...]:
    return tuple(
        Column(name, "|u1", (), "bytes")
        if isinstance(value, bytes)
        else Column(name, value.dtype.newbyteorder("<").str, value.shape)
        for name, value in row.items()
    )


def common(
    columns: Sequence[Column], row: int, others: Sequence[Column], other_row: int
) -> tuple[Column, ...]:
    """The columns that fit the rows of both. Raises ``DataError`` if no columns do.

    Args:
        columns: The columns made of ``row``, and maybe of others.
        row: Its number in the source, for messages.
        others: The columns made of ``other_row``, and maybe of others.
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
    """The column of these values, which ``common`` has accepted. It may have sequences that are all empty.
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
        check_column(name, column, what, "do not return it")
    return column


RowFunction: TypeAlias = Callable[[Mapping[str, Any], Split], Mapping[str, Any]]


@dataclass(slots=True)
class _User:
    """The user's function, imported once in each process."""

    function: RowFunction | None = None
    root: str = ""


_user = _User()


def start(parent: int, reference: str, root: str) -> None:
    """Make this process one that prepares rows, and that ends with ``parent``."""
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this process
    _user.function, _user.root = import_object(reference, Path(root)), root


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a source, for one split."""

    split: Split
    numbers: tuple[int, ...]
    """Their numbers in the source, from 0."""
    columns: Arrays
    """Their values by column, in the order of ``numbers``."""


def make_chunk(folder: str, name: str, rows: Rows, labels: Sequence[str], seed: int) -> JobRecord:
    """Apply the user's function, and write its results; the record has the columns, the number of good rows,
    and the bad rows.

    A row for which it raises, or that has a NaN or infinite value, is bad (``labels``: only these columns are
    checked). Rows that differ in columns, types or more than lengths are a ``DataError``.
    """
    good: list[tuple[int, Mapping[str, Value]]] = []
    bad: list[BadRow] = []
    for at, number in enumerate(rows.numbers):
        try:
            good.append((number, _made(rows, at, labels, seed)))
        except (Exception, SystemExit) as exc:
            why = f"{type(exc).__name__}: {exc} (at {place_in(_user.root, exc)})"
            bad.append(BadRow(rows.split, number, redacted(why)))
    first, like = good[0] if good else (None, {})
    kinds = columns_of_row(like)
    for number, row in good[1:]:
        assert first is not None
        kinds = common(kinds, first, columns_of_row(row), number)
    what = f"row {first} as the row function makes it"
    columns = [stacked([row[name] for _, row in good], name, what) for name in like]
    data = io.BytesIO()
    np.savez(data, allow_pickle=False, **dict(_arrays(columns)))
    record = {
        "good": len(good),
        "bad": [asdict(row) for row in bad],
        "first": first,
        "columns": [asdict(column) for column in kinds],
    }
    with translated(DataError, f"cannot write {name}"):
        place = locate(folder)
        write(place / f"{name}.npz", [data.getbuffer()])
        write(record_of(place, name), [json.dumps(record).encode()])
    return record


def _made(rows: Rows, at: int, labels: Sequence[str], seed: int) -> Mapping[str, Value]:
    """The function's result for one of the ``rows``."""
    assert _user.function is not None
    digest = hashlib.sha256(f"{seed} {rows.split} {rows.numbers[at]}".encode()).digest()
    random.seed(digest)
    np.random.seed(int.from_bytes(digest[:4]))
    values = _user.function({name: column[at] for name, column in rows.columns.items()}, rows.split)
    columns: dict[str, Value] = {name: value_of(value) for name, value in dict(values).items()}
    for name in labels or columns:
        value = columns[name]
        if not isinstance(value, bytes) and len(not_finite(value[np.newaxis])):
            raise ValueError(f"{name!r} is NaN or infinite")
    return columns


def join_chunks(
    url: str,
    folder: str,
    split: Split,
    index: int,
    columns: Sequence[Column],
    chunks: Sequence[tuple[str, int]],
) -> JobRecord:
    """Write a partition of ``chunks``, each by name and number of rows; the record is its entry in the
    manifest."""
    rows = sum(count for _, count in chunks)
    files = []
    with translated(DataError, f"cannot write {split} partition {index} of {url}"):
        archives = [locate(folder) / f"{name}.npz" for name, count in chunks if count]
        for at, column in enumerate(columns):
            files += _joined(archives, at, column, rows).write(locate(url), split, index)
        record = asdict(PartitionFiles(rows, tuple(files)))
        write(record_of(locate(folder), f"{split}-{index:05d}"), [json.dumps(record).encode()])
    return record


def _arrays(columns: Sequence[NDArray[Any] | Ragged]) -> Iterator[tuple[str, NDArray[Any]]]:
    """The arrays of a chunk's file, by name: one for a column, two if its rows vary."""
    for at, column in enumerate(columns):
        if isinstance(column, Ragged):
            yield f"{at} offsets", column.offsets
            yield f"{at} values", column.values
        else:
            yield str(at), column


def _joined(archives: Sequence[Place], at: int, column: Column, rows: int) -> ColumnData:
    """The column number ``at`` of all chunks."""

    def whole_rows() -> Iterator[NDArray[Any]]:
        return (archive[str(at)] for archive in _opened(archives))

    def all_sequences() -> Iterator[Ragged]:
        for archive in _opened(archives):
            if str(at) in archive:  # the rows of a chunk may have one length by chance
                yield of_one_length(archive[str(at)])
            else:
                yield Ragged(archive[f"{at} values"], archive[f"{at} offsets"])

    if column.kind == "rows":
        return ColumnData(column, rows, whole_rows)
    lengths = np.concatenate([part.lengths for part in all_sequences()])
    return ColumnData(column, rows, lambda: (part.values for part in all_sequences()), lengths)


def _opened(archives: Sequence[Place]) -> Iterator[Any]:
    for place in archives:
        with open_buffered(place) as file, np.load(file, allow_pickle=False) as archive:
            yield archive
