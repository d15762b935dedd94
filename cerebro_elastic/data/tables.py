"""CSV and Parquet files as named columns. They are read by pyarrow (extra ``parquet``), always: another
reader would infer other dtypes."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.ragged import Ragged, offsets_of
from cerebro_elastic.errors import DataError, MissingExtra
from cerebro_elastic.files import CHUNK, Place, open_read

_DELIMITERS = ";\t|"
"""What separates fields instead of commas, in a header that has no comma."""


def read_tables(files: Sequence[Place]) -> dict[str, NDArray[Any] | Ragged]:
    """The columns of all files, one below the other. Whole numbers and floats of one column, in different
    files, are floats; what one file lacks is missing. Raises ``DataError`` for what is no table."""
    try:
        import pyarrow as pa
    except ImportError as exc:
        raise MissingExtra(
            "reading CSV and Parquet needs pyarrow: pip install 'cerebro-elastic[parquet]'"
        ) from exc
    tables = []
    for place in files:
        table = _read_table(place)
        if twice := [name for name, count in Counter(table.column_names).items() if count > 1]:
            raise DataError(f"{place} has the column {twice[0]!r} more than once: rename one of them")
        if not table.num_rows:
            raise DataError(f"{place} has no rows, only the names of its columns: remove it, or give another")
        tables.append(table)
    table = pa.concat_tables(tables, promote_options="permissive")
    return {name: _column(name, table.column(name)) for name in table.column_names}


def _column(name: str, column: Any) -> NDArray[Any] | Ragged:
    import pyarrow as pa

    # A chunk after the other, for Arrow's own arrays of text and lists end at 2 GiB.
    type_ = _large(column.type)
    chunks = [chunk.cast(type_) for chunk in column.chunks]
    return column_of(name, pa.concat_arrays(chunks) if chunks else pa.array([], type_))


def _large(type_: Any) -> Any:
    """The type whose arrays may be larger than 2 GiB."""
    import pyarrow as pa

    if pa.types.is_binary(type_):
        return pa.large_binary()
    if pa.types.is_string(type_):
        return pa.large_string()
    return pa.large_list(type_.value_type) if pa.types.is_list(type_) else type_


def _read_table(place: Place) -> Any:
    import pyarrow.csv
    import pyarrow.parquet

    with io.BufferedReader(open_read(place), CHUNK) as file:
        if PurePosixPath(place.path).suffix.lower() == ".parquet":
            return pyarrow.parquet.read_table(file)
        delimiter = "\t" if PurePosixPath(place.path).suffix.lower() == ".tsv" else _delimiter(file)
        table = pyarrow.csv.read_csv(
            file,
            parse_options=pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(strings_can_be_null=True),  # else "" is a category
        )
    if binary := [field.name for field in table.schema if _is_binary(field.type)]:
        raise DataError(f"column {binary[0]!r} of {place} is no text of UTF-8: write the file in UTF-8")
    return table


def _delimiter(file: io.BufferedReader[Any]) -> str:
    """A comma, unless the header has none and something else instead."""
    header = file.peek(CHUNK)[:CHUNK].split(b"\n", 1)[0].decode("utf-8", "replace")
    unquoted = "".join(header.split('"')[::2])
    if "," in unquoted:
        return ","
    return max(_DELIMITERS, key=unquoted.count) if any(sign in unquoted for sign in _DELIMITERS) else ","


def column_of(name: str, values: Any) -> NDArray[Any] | Ragged:
    """A pyarrow array as a column: lists of one length become an axis of their own, others and binary values
    have varying lengths. Raises ``DataError`` if one of these is missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(values, pa.DictionaryArray):
        values = values.dictionary_decode()
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.float64())
    is_list = isinstance(values.type, pa.ListType | pa.LargeListType | pa.FixedSizeListType)
    if is_list or _is_binary(values.type):
        _check_no_nulls(name, values, np.arange(len(values) + 1))
    if _is_binary(values.type):
        return _encoded(values.cast(pa.large_binary()))
    if not is_list:
        array: NDArray[Any] = values.to_numpy(zero_copy_only=False)
        return array
    lengths = pc.list_value_length(values).to_numpy(zero_copy_only=False)
    offsets, flat = offsets_of(lengths), values.flatten()
    _check_no_nulls(name, flat, offsets)
    inner = column_of(name, flat)
    if isinstance(inner, Ragged):
        raise DataError(f"column {name!r} has lists of lists or of bytes, of varying lengths: flatten them")
    if len(lengths) and (lengths == lengths[0]).all():
        return inner.reshape(len(lengths), int(lengths[0]), *inner.shape[1:])
    return Ragged(inner, offsets)


def _is_binary(type_: Any) -> bool:
    import pyarrow.types as types

    return bool(types.is_binary(type_) or types.is_large_binary(type_) or types.is_fixed_size_binary(type_))


def _encoded(values: Any) -> Ragged:
    """Large binary values, without a copy."""
    _, offsets, data = values.buffers()
    begin = values.offset
    bounds = np.frombuffer(offsets, np.int64)[begin : begin + len(values) + 1]
    content = np.frombuffer(data or b"", np.uint8)[bounds[0] : bounds[-1]]
    return Ragged(content, bounds - bounds[0], "bytes")


def _check_no_nulls(name: str, values: Any, offsets: NDArray[Any]) -> None:
    """Raise ``DataError`` if a value, of the row that ``offsets`` say, is missing."""
    if values.null_count:
        at = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
        row = int(np.searchsorted(offsets, at, "right")) - 1
        raise DataError(
            f"column {name!r} has no value in row {row} (the first is 0): remove the row, or leave the "
            "column out by `columns`"
        )
