"""Files of text as tables: CSV, and JSON lines. Their types suit all rows, which are read once for that."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from cerebro_elastic.data.column_checks import is_number
from cerebro_elastic.data.kinds.arrow_columns import common_schema, facts_of, flat, is_binary
from cerebro_elastic.data.kinds.kind import Facts, Wanted, suffix_of
from cerebro_elastic.errors import DataError, brief
from cerebro_elastic.system.files import CHUNK, Place, open_buffered
from cerebro_elastic.system.words import counted

_DELIMITERS = ";\t|"
"""Separators of fields in a header that has no comma."""
_BLOCK_BYTES = 4 * CHUNK
"""About so much of a file of JSON lines is in memory at a time."""


def csv_facts(place: Place, wanted: Wanted) -> Facts:
    """The rows and columns of a CSV file. Raises ``DataError`` if its first line seems to be a row, unless it
    has a name that is ``wanted``."""
    import pyarrow as pa

    types: dict[str, Any] = {}
    with _csv_reader(place, types) as reader:
        inferred = reader.schema  # of the first rows
    if not set(inferred.names) & set(wanted or ()):
        _check_header(place, inferred)
    while True:
        try:
            rows = sum(batch.num_rows for batch in csv_batches(place, types))
            break
        except pa.ArrowInvalid as exc:
            # With one thread (OMP_NUM_THREADS) pyarrow reports the row, too.
            failed = re.search(r"In CSV column #(\d+): (Row #\d+: )?CSV conversion error", str(exc))
            if failed is None:
                raise
            field = inferred.field(int(failed[1]))
            types[field.name] = _wider(types.get(field.name, field.type))
    schema = pa.schema([(field.name, types.get(field.name, field.type)) for field in inferred])
    if binary := [field.name for field in schema if is_binary(field.type)]:
        raise DataError(f"column {binary[0]!r} of {place} is no text of UTF-8: write the file in UTF-8")
    return Facts(rows, schema)


def csv_batches(place: Place, types: Mapping[str, Any]) -> Iterator[Any]:
    """The rows of a CSV file; those of ``types`` are the types of columns."""
    with _csv_reader(place, types) as reader:
        yield from reader


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
def _csv_reader(place: Place, types: Mapping[str, Any]) -> Iterator[Any]:
    import pyarrow.csv

    with open_buffered(place) as file:
        delimiter = "\t" if suffix_of(str(place)) == ".tsv" else _delimiter(file)
        with pyarrow.csv.open_csv(
            file,
            read_options=pyarrow.csv.ReadOptions(block_size=CHUNK),
            parse_options=pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(
                strings_can_be_null=True,  # else "" is a category
                column_types=types,
            ),
        ) as reader:
            yield reader


def _delimiter(file: io.BufferedReader[Any]) -> str:
    """A comma, unless the header has none and something else instead."""
    header = file.peek(CHUNK)[:CHUNK].split(b"\n", 1)[0].decode("utf-8", "replace")
    unquoted = "".join(header.split('"')[::2])
    if "," in unquoted:
        return ","
    return max(_DELIMITERS, key=unquoted.count) if any(sign in unquoted for sign in _DELIMITERS) else ","


def json_facts(place: Place, wanted: Wanted) -> Facts:
    """The rows and columns of a file of JSON lines, whose rows may differ in columns."""
    schemas: list[tuple[str, Any]] = []

    def noted() -> Iterator[Any]:
        for line, batch in json_batches(place):
            schemas.append((f"{place} from line {line}", batch.schema))
            yield batch

    facts = facts_of(None, noted())
    return replace(facts, schema=common_schema(schemas, wanted))


def json_batches(place: Place) -> Iterator[tuple[int, Any]]:
    """A record batch of each block of lines, and the number of its first line."""
    import pyarrow as pa
    import pyarrow.json

    line = 1
    with open_buffered(place) as file:
        while lines := file.readlines(_BLOCK_BYTES):
            text = b"".join(lines)
            options = pyarrow.json.ReadOptions(block_size=len(text) + 1)
            try:
                if text.strip():
                    (batch,) = pyarrow.json.read_json(io.BytesIO(text), options).to_batches()
                    yield line, flat(batch)
            except pa.ArrowInvalid as exc:
                raise DataError(
                    f"the {counted(len(lines), 'line')} of {place} from line {line} cannot be read "
                    f"({brief(str(exc))}): each is an object, {{...}}, and a column has values of one type"
                ) from exc
            line += len(lines)
