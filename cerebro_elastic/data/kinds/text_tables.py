"""Files of text as tables: CSV, and JSON lines. Their types are those of all rows, which are read once for
that, unless they are given."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from cerebro_elastic.data.column_checks import is_number
from cerebro_elastic.data.kinds.arrow_columns import Table, common_schema, flat, is_binary
from cerebro_elastic.data.kinds.kind import Wanted, is_wanted
from cerebro_elastic.errors import DataError, brief
from cerebro_elastic.system.files import CHUNK, Place, open_buffered

_DELIMITERS = ";\t|"
"""What separates fields instead of commas, in a header that has no comma."""
_BLOCK_BYTES = 4 * CHUNK
"""About so much of a file of JSON lines is in memory at a time."""


def csv_table(place: Place, suffix: str, wanted: Wanted, given: Mapping[str, Any]) -> Table:
    """A CSV file. Raises ``DataError`` if its first line seems to be a row, unless it has a name that is
    ``wanted``. Columns have the ``given`` types; without these, the first ones that hold all values."""
    import pyarrow as pa

    with open_buffered(place) as file:
        delimiter = "\t" if suffix == ".tsv" else _delimiter(file)
    types = dict(given)
    with _csv_reader(place, delimiter, types) as reader:
        inferred = reader.schema  # of the first rows
    if not set(inferred.names) & set(wanted or ()):
        _check_header(place, inferred)

    def batches() -> Iterator[Any]:
        with _csv_reader(place, delimiter, types) as reader:
            yield from reader

    while not given:
        try:
            for _ in batches():
                pass
            break
        except pa.ArrowInvalid as exc:
            # With one thread (OMP_NUM_THREADS) pyarrow knows the row, too.
            failed = re.search(r"In CSV column #(\d+): (Row #\d+: )?CSV conversion error", str(exc))
            if failed is None:
                raise
            field = inferred.field(int(failed[1]))
            types[field.name] = _wider(types.get(field.name, field.type))
    schema = pa.schema([(field.name, types.get(field.name, field.type)) for field in inferred])
    if binary := [field.name for field in schema if is_binary(field.type)]:
        raise DataError(f"column {binary[0]!r} of {place} is no text of UTF-8: write the file in UTF-8")
    return Table(schema, batches)


def _check_header(place: Place, schema: Any) -> None:
    """Raise ``DataError`` if the names of all columns of numbers are numbers themselves, unless these count
    the columns, or years."""
    import pyarrow.types as types

    names = [field.name for field in schema if types.is_integer(field.type) or types.is_floating(field.type)]
    if not names or not all(map(is_number, names)):
        return
    numbers = list(map(float, names))
    counts = [numbers[0] + at for at in range(len(numbers))]
    if numbers == counts and (len(numbers) > 1 or numbers[0] in (0, 1)):
        return
    raise DataError(
        f"the first line of {place} seems to be a row, not the names of columns "
        f"({brief(', '.join(map(repr, schema.names)))}): put a line of names before it; if these are names, "
        "choose by `columns` or `features` which to use"
    )


def _wider(type_: Any) -> Any:
    """The type to try when values of a column are not of this one. Bytes that are no UTF-8 come last."""
    import pyarrow as pa

    order = [pa.null(), pa.int64(), pa.float64(), pa.string(), pa.binary()]
    return order[order.index(type_) + 1] if type_ in order else pa.string()


@contextmanager
def _csv_reader(place: Place, delimiter: str, types: Mapping[str, Any]) -> Iterator[Any]:
    import pyarrow.csv

    with (
        open_buffered(place) as file,
        pyarrow.csv.open_csv(
            file,
            read_options=pyarrow.csv.ReadOptions(block_size=CHUNK),
            parse_options=pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(
                strings_can_be_null=True,  # else "" is a category
                column_types=types,
            ),
        ) as reader,
    ):
        yield reader


def _delimiter(file: io.BufferedReader[Any]) -> str:
    """A comma, unless the header has none and something else instead."""
    header = file.peek(CHUNK)[:CHUNK].split(b"\n", 1)[0].decode("utf-8", "replace")
    unquoted = "".join(header.split('"')[::2])
    if "," in unquoted:
        return ","
    return max(_DELIMITERS, key=unquoted.count) if any(sign in unquoted for sign in _DELIMITERS) else ","


def json_table(place: Place, wanted: Wanted, given: Mapping[str, Any]) -> Table:
    """A file of JSON lines, which may differ in columns and types."""
    import pyarrow as pa

    schema = pa.schema(list(given.items()))
    if not given:
        schema = common_schema([(str(place), batch.schema) for batch in _batches(place, wanted, {})], wanted)
    types = {field.name: field.type for field in schema}
    return Table(schema, lambda: _batches(place, wanted, types))


def _batches(place: Place, wanted: Wanted, types: Mapping[str, Any]) -> Iterator[Any]:
    """A record batch of each block of lines. pyarrow is fast, and reads columns of one type only; a column
    of several types, or one of text by its type, needs Python."""
    import pyarrow as pa
    import pyarrow.json

    for first, lines in _blocks(place):
        text = b"".join(lines)
        options = pyarrow.json.ReadOptions(block_size=len(text) + 1)
        try:
            (batch,) = map(flat, pyarrow.json.read_json(io.BytesIO(text), options).to_batches())
        except (pa.ArrowInvalid, ValueError):
            batch = None
        if batch is None or any(
            types.get(field.name) == pa.string() and field.type not in (pa.string(), pa.null())
            for field in batch.schema
        ):
            rows = [_row(place, line, text) for line, text in enumerate(lines, first) if text.strip()]
            batch = _batch_of(place, rows, wanted, types)
        yield batch


def _blocks(place: Place) -> Iterator[tuple[int, list[bytes]]]:
    """The file's lines, and the number of the first of each block."""
    line = 1
    with open_buffered(place) as file:
        while lines := file.readlines(_BLOCK_BYTES):
            if any(map(bytes.strip, lines)):
                yield line, lines
            line += len(lines)


def _row(place: Place, line: int, text: bytes) -> dict[str, Any]:
    """The columns of one line. Raises ``DataError`` if it is no object."""
    try:
        value = json.loads(text)
    except ValueError as exc:
        raise DataError(f"line {line} of {place} is not JSON: {exc}; correct it") from exc
    if not isinstance(value, dict):
        raise DataError(f"line {line} of {place} is {brief(repr(value))}: each line is an object, {{...}}")
    return dict(_fields(value, ""))


def _fields(value: Mapping[str, Any], before: str) -> Iterator[tuple[str, Any]]:
    for name, inner in value.items():
        if isinstance(inner, dict):
            yield from _fields(inner, f"{before}{name}.")
        else:
            yield before + name, inner


def _batch_of(
    place: Place, rows: Sequence[Mapping[str, Any]], wanted: Wanted, types: Mapping[str, Any]
) -> Any:
    """The rows as a record batch: a column of several types, or one of text by its type, is text. One that
    cannot be is left out, unless it is ``wanted``."""
    import pyarrow as pa

    columns: dict[str, Any] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        try:
            columns[name] = pa.array(list(map(_text, values)) if types.get(name) == pa.string() else values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as exc:
            if not any(isinstance(value, list) for value in values):
                columns[name] = pa.array([_text(value) for value in values], pa.string())
            elif is_wanted(name, wanted):
                raise DataError(
                    f"column {brief(repr(name))} of {place} has lists and other values, or lists of several "
                    f"types ({brief(str(exc))}): make them alike, or leave the column out by `columns`"
                ) from exc
    return pa.RecordBatch.from_pydict(columns)


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)
