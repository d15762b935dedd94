"""CSV and Parquet files as named columns. They are read by pyarrow (extra ``parquet``), always: another
reader would infer other dtypes."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from numpy.typing import NDArray

from cerebro_elastic.errors import DataError, MissingExtra
from cerebro_elastic.files import CHUNK, Place, open_read

_DELIMITERS = ";\t|"
"""What separates fields instead of commas, in a header that has no comma."""


def read_tables(files: Sequence[Place]) -> dict[str, NDArray[Any]]:
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


def _read_table(place: Place) -> Any:
    import pyarrow.csv
    import pyarrow.parquet

    with io.BufferedReader(open_read(place), CHUNK) as file:
        if PurePosixPath(place.path).suffix.lower() == ".parquet":
            return pyarrow.parquet.read_table(file)
        delimiter = "\t" if PurePosixPath(place.path).suffix.lower() == ".tsv" else _delimiter(file)
        return pyarrow.csv.read_csv(
            file,
            parse_options=pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(strings_can_be_null=True),  # else "" is a category
        )


def _delimiter(file: io.BufferedReader[Any]) -> str:
    """A comma, unless the header has none and something else instead."""
    header = file.peek(CHUNK)[:CHUNK].split(b"\n", 1)[0].decode("utf-8", "replace")
    unquoted = "".join(header.split('"')[::2])
    if "," in unquoted:
        return ","
    return max(_DELIMITERS, key=unquoted.count) if any(sign in unquoted for sign in _DELIMITERS) else ","


def _column(name: str, column: Any) -> NDArray[Any]:
    """A pyarrow column as an array; lists of one length become an axis of their own."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    shape = [len(values)]
    while isinstance(values.type, pa.ListType | pa.LargeListType | pa.FixedSizeListType):
        lengths = pc.unique(pc.list_value_length(values)).to_pylist()
        if len(lengths) != 1 or lengths[0] is None:
            raise DataError(f"column {name!r} has lists of lengths {lengths}: all must have one length")
        values = values.flatten()
        shape.append(lengths[0])
    if isinstance(values, pa.DictionaryArray):
        values = values.dictionary_decode()
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.float64())
    array: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return array.reshape(shape)
