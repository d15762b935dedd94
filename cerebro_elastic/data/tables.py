"""Tables as named columns: CSV, JSON lines, Parquet and Arrow. They are read by pyarrow (extra ``parquet``),
always: another reader would infer other dtypes.

A table is read a batch of rows at a time into columns that grow in temporary files: it may be larger than
memory.
"""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from numpy.typing import NDArray

from cerebro_elastic.data.arrow_columns import cast_to, column_of, flat, flat_schema, is_binary
from cerebro_elastic.data.coded import Coded
from cerebro_elastic.data.growing import GrowingColumn
from cerebro_elastic.data.ragged import Varying
from cerebro_elastic.errors import DataError, MissingExtra
from cerebro_elastic.files import CHUNK, Place, open_read

_DELIMITERS = ";\t|"
"""What separates fields instead of commas, in a header that has no comma."""

_BATCH_BYTES = 4 * CHUNK
"""About so much of a table is in memory at a time."""
_IN_MEMORY = 32 * CHUNK
"""So many bytes of columns are in memory. What is more goes to temporary files."""
_BATCH_ROWS = 1 << 16
"""At most so many rows are."""


@dataclass(frozen=True, slots=True)
class _Table:
    """A file's table."""

    name: str
    """What messages call it."""
    schema: Any
    """Its columns, of pyarrow."""
    batches: Callable[[], Iterable[Any]]
    """Reads it, as record batches."""


def read_tables(files: Sequence[Place]) -> dict[str, NDArray[Any] | Varying]:
    """The columns of all files, one below the other. Whole numbers and floats of one column, in different
    files, are floats; what one file lacks is missing. Raises ``DataError`` for what is no table."""
    try:
        import pyarrow as pa
    except ImportError as exc:
        raise MissingExtra(
            "reading CSV, JSON lines, Parquet and Arrow needs pyarrow: pip install 'cerebro-elastic[parquet]'"
        ) from exc
    tables = [_checked(_open(place)) for place in files]
    schema = pa.unify_schemas([table.schema for table in tables], promote_options="permissive")
    in_memory = _IN_MEMORY // max(1, len(schema.names))
    columns = {name: GrowingColumn(name, in_memory) for name in schema.names}
    for table in tables:
        rows = 0
        for batch in table.batches():
            rows += batch.num_rows
            for name, values in cast_to(batch, schema):
                columns[name].append(column_of(name, values))
        if not rows:
            raise DataError(
                f"{table.name} has no rows, only the names of its columns: remove it, or give another"
            )
    classes = _class_names(tables)
    return {name: _coded(column.whole(), classes.get(name)) for name, column in columns.items()}


def _coded(column: NDArray[Any] | Varying, names: Sequence[str] | None) -> NDArray[Any] | Varying:
    is_code = not isinstance(column, Varying) and column.ndim == 1 and column.dtype.kind in "iu"
    return Coded.of(column, names) if names and is_code else column


def _checked(table: _Table) -> _Table:
    if twice := [name for name, count in Counter(table.schema.names).items() if count > 1]:
        raise DataError(f"{table.name} has the column {twice[0]!r} more than once: rename one of them")
    return table


def _class_names(tables: Sequence[_Table]) -> Mapping[str, Sequence[str]]:
    """By column the names of its classes, where Hugging Face's ``datasets`` has written them. Raises
    ``DataError`` if files differ in them."""
    known: dict[str, Sequence[str]] = {}
    for table in tables:
        text = (table.schema.metadata or {}).get(b"huggingface")
        features = json.loads(text).get("info", {}).get("features") or {} if text else {}
        for name, feature in features.items():
            is_class = isinstance(feature, dict) and feature.get("_type") == "ClassLabel"
            names = feature.get("names") if is_class else None
            if names and known.setdefault(name, names) != names:
                raise DataError(f"{table.name} has other classes of {name!r} than the files before it")
    return known


def _open(place: Place) -> _Table:
    import pyarrow as pa

    suffix = PurePosixPath(place.path.partition("?")[0]).suffix.lower()
    if suffix == ".parquet":
        return _parquet(place)
    if suffix in (".arrow", ".feather"):
        return _arrow(place)
    if suffix in (".jsonl", ".ndjson"):
        blocks = [batch.schema for batch in _json_batches(place)]
        return _Table(
            str(place),
            pa.unify_schemas(blocks, promote_options="permissive") if blocks else pa.schema([]),
            lambda: _json_batches(place),
        )
    with io.BufferedReader(open_read(place), CHUNK) as file:
        delimiter = "\t" if suffix == ".tsv" else _delimiter(file)
    return _csv(place, delimiter)


def _parquet(place: Place) -> _Table:
    import pyarrow.parquet

    def batches() -> Iterator[Any]:
        with io.BufferedReader(open_read(place), CHUNK) as file:
            opened = pyarrow.parquet.ParquetFile(file)
            groups = [opened.metadata.row_group(at) for at in range(opened.num_row_groups)]
            row_bytes = sum(group.total_byte_size for group in groups) / max(1, opened.metadata.num_rows)
            rows = max(1, min(_BATCH_ROWS, int(_BATCH_BYTES / max(1, row_bytes))))
            for group in range(len(groups)):  # of all at once pyarrow would keep what it has read ahead
                yield from map(flat, opened.iter_batches(rows, row_groups=[group]))

    with io.BufferedReader(open_read(place), CHUNK) as file:
        return _Table(str(place), flat_schema(pyarrow.parquet.read_schema(file)), batches)


def _arrow(place: Place) -> _Table:
    """An Arrow file or, as Hugging Face's ``datasets`` writes it, an Arrow stream."""
    import pyarrow as pa

    @contextmanager
    def opened() -> Iterator[tuple[Any, Iterable[Any]]]:
        with pa.memory_map(place.path) if place.local else pa.PythonFile(open_read(place), "r") as file:
            try:
                reader = pa.ipc.open_file(file)
            except pa.ArrowInvalid:
                file.seek(0)
                reader = pa.ipc.open_stream(file)
                yield reader.schema, reader
            else:
                yield reader.schema, map(reader.get_batch, range(reader.num_record_batches))

    def batches() -> Iterator[Any]:
        with opened() as (_, stored):
            yield from map(flat, stored)

    with opened() as (schema, _):
        return _Table(str(place), flat_schema(schema), batches)


def _json_batches(place: Place) -> Iterator[Any]:
    """The rows of a file of JSON lines. Blocks of lines may have different columns and types."""
    import pyarrow.json

    with io.BufferedReader(open_read(place), CHUNK) as file:
        while lines := file.readlines(_BATCH_BYTES):
            text = b"".join(lines)
            if text.strip():
                options = pyarrow.json.ReadOptions(block_size=len(text) + 1)
                table = pyarrow.json.read_json(io.BytesIO(text), read_options=options)
                yield from map(flat, table.to_batches())


def _csv(place: Place, delimiter: str) -> _Table:
    """A CSV file. Types are inferred of all its rows: they are read once for that."""
    import pyarrow as pa

    types: dict[str, Any] = {}
    with _csv_reader(place, delimiter, types) as reader:
        inferred = reader.schema  # of the first rows
    table = _checked(_Table(str(place), inferred, lambda: _csv_batches(place, delimiter, types)))
    while True:
        try:
            for _ in table.batches():
                pass
            break
        except pa.ArrowInvalid as exc:
            failed = re.search(r"In CSV column #(\d+): CSV conversion error", str(exc))
            if failed is None:
                raise
            field = inferred.field(int(failed[1]))
            types[field.name] = _wider(types.get(field.name, field.type))
    schema = pa.schema([(field.name, types.get(field.name, field.type)) for field in inferred])
    if binary := [field.name for field in schema if is_binary(field.type)]:
        raise DataError(f"column {binary[0]!r} of {place} is no text of UTF-8: write the file in UTF-8")
    return replace(table, schema=schema)


def _wider(type_: Any) -> Any:
    """What pyarrow tries when values of a column are not of this type."""
    import pyarrow as pa

    order = [pa.null(), pa.int64(), pa.bool_(), pa.float64(), pa.date32(), pa.time32("s")]
    order += [pa.timestamp("s"), pa.timestamp("ns"), pa.string(), pa.binary()]
    return order[order.index(type_) + 1]


def _csv_batches(place: Place, delimiter: str, types: Mapping[str, Any]) -> Iterator[Any]:
    with _csv_reader(place, delimiter, types) as reader:
        yield from reader


@contextmanager
def _csv_reader(place: Place, delimiter: str, types: Mapping[str, Any]) -> Iterator[Any]:
    import pyarrow.csv

    with (
        io.BufferedReader(open_read(place), CHUNK) as file,
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
