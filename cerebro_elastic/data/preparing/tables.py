"""Tables as named columns: CSV, JSON lines, Parquet and Arrow. They are read by pyarrow (extra ``parquet``),
always: another reader would infer other dtypes.

A table is read a batch of rows at a time into columns that grow in temporary files: it may be larger than
memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from numpy.typing import NDArray

from cerebro_elastic.data.preparing.arrow_tables import (
    Table,
    Wanted,
    cast_to,
    column_of,
    common_schema,
    flat,
    flat_schema,
    is_list,
    is_wanted,
    lengths_of,
)
from cerebro_elastic.data.preparing.categories import Coded
from cerebro_elastic.data.preparing.growing import GrowingColumn
from cerebro_elastic.data.preparing.text_tables import csv_table, json_table
from cerebro_elastic.data.ragged import Columns, Varying
from cerebro_elastic.errors import DataError, MissingExtra
from cerebro_elastic.registry import install_extra
from cerebro_elastic.system.files import CHUNK, Place, open_buffered, open_read

TABLES = (".csv", ".tsv", ".parquet", ".arrow", ".feather", ".jsonl", ".ndjson")
"""The suffixes of tables."""

_BATCH_BYTES = 4 * CHUNK
"""About so much of a table is in memory at a time."""
_IN_MEMORY = 32 * CHUNK
"""The number of bytes of columns that are kept in memory. Further bytes go to temporary files."""
_BATCH_ROWS = 1 << 16
"""The largest number of rows of a batch."""
_PAGE_BYTES = 1 << 16
"""About so much of a column of Parquet is read at a time where only the first rows are."""
_MISSING = "__HIVE_DEFAULT_PARTITION__"
"""What stands for a missing value in the name of a folder."""


def read_tables(
    files: Sequence[Place],
    wanted: Wanted = None,
    in_folders: Sequence[Mapping[str, str]] = (),
) -> dict[str, NDArray[Any] | Varying]:
    """The columns of all files, one below the other. Whole numbers and floats of one column, in different
    files, are floats, and numbers and text are text; what one file lacks is missing. Raises ``DataError`` for
    what is no table.

    Args:
        files: The files.
        wanted: The columns that are used.
        in_folders: By file, the columns that the names of its folders say.
    """
    pa = _pyarrow()
    tables = [_open(place, wanted, None).check_names() for place in files]
    classes = _class_names(tables)
    if in_folders:
        tables = _with_folders(tables, in_folders)

    def read_as_text(name: str) -> None:
        for table in tables:
            table.read_as_text(name)

    schema = common_schema([(table.name, table.schema) for table in tables], wanted, read_as_text)
    in_memory = _IN_MEMORY // max(1, len(schema.names))
    columns = {name: GrowingColumn(name, in_memory) for name in schema.names}
    for table in tables:
        rows = 0
        for batch in table.batches():
            rows += batch.num_rows
            for name in list(columns):
                try:
                    columns[name].append(column_of(name, cast_to(batch, schema.field(name))))
                except (DataError, pa.ArrowException):
                    if is_wanted(name, wanted):
                        raise
                    del columns[name]
        if not rows:
            raise DataError(
                f"{table.name} has no rows, only the names of its columns: remove it, or give another"
            )
    return {name: _coded(column.whole(), classes.get(name)) for name, column in columns.items()}


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as exc:
        raise MissingExtra(
            f"reading CSV, JSON lines, Parquet and Arrow needs pyarrow: {install_extra('parquet')}"
        ) from exc
    return pyarrow


def table_pieces(place: Place, wanted: Wanted, most: int | None) -> Iterator[Columns]:
    """The ``wanted`` columns of one file, a piece of its rows at a time; of no more than its first ``most``
    rows. Raises ``DataError`` as ``read_tables``."""
    _pyarrow()
    table = _open(place, wanted, most).check_names()
    classes = _class_names([table])
    fields = [field for field in table.schema if is_wanted(field.name, wanted)]
    if suffix_of(str(place)) == ".parquet":
        table = _parquet(place, most, None if wanted is None else [field.name for field in fields])
    for batch in _first(table.batches(), most):
        yield {
            field.name: _coded(column_of(field.name, cast_to(batch, field)), classes.get(field.name))
            for field in fields
        }


def _first(batches: Iterable[Any], most: int | None) -> Iterator[Any]:
    """The batches, which end after ``most`` rows."""
    for batch in batches:
        yield batch if most is None else batch.slice(0, most)
        if most is not None and (most := most - batch.num_rows) <= 0:
            return


class TableFacts(NamedTuple):
    """What is known of a table before its columns are made."""

    rows: int
    schema: Any
    """Its columns, of pyarrow."""
    lengths: Mapping[str, int]
    """The columns of lists that may have all one length, and that length."""
    missing: Sequence[str]
    """The columns in which a row has no value, as far as the file says."""


def look_at_table(place: Place, wanted: Wanted = None) -> TableFacts:
    """The facts of one file: of Parquet its footer says them, other files are read for them once. Raises
    ``DataError`` for what is no table."""
    _pyarrow()
    if suffix_of(str(place)) == ".parquet":
        return _parquet_facts(place)
    table = _open(place, wanted, None).check_names()
    rows, lengths = 0, dict[str, set[int]]()
    for batch in table.batches():
        rows += batch.num_rows
        for name, values in zip(batch.schema.names, batch.columns, strict=True):
            if is_list(values.type):
                lengths.setdefault(name, set()).update(lengths_of(values))
    known = {name: found.pop() for name, found in lengths.items() if len(found) == 1}
    return TableFacts(rows, table.schema, known, ())


def _parquet_facts(place: Place) -> TableFacts:
    """A column whose row groups all have ``rows * length`` values has lists of this mean length."""
    import pyarrow.parquet

    with open_buffered(place) as file:
        opened = pyarrow.parquet.ParquetFile(file)
        metadata, schema = opened.metadata, flat_schema(opened.schema_arrow)
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    lengths, missing = {}, []
    for at in range(metadata.num_columns):
        column = metadata.schema.column(at)
        if column.max_repetition_level == 0:
            statistics = [group.column(at).statistics for group in groups]
            if any(each is not None and each.has_null_count and each.null_count for each in statistics):
                missing.append(column.path)
        elif column.max_repetition_level == 1:
            means = {group.column(at).num_values / max(1, group.num_rows) for group in groups}
            if len(means) == 1 and (mean := means.pop()).is_integer():
                lengths[column.path.rsplit(".", 2)[0]] = int(mean)
    return TableFacts(metadata.num_rows, schema, lengths, missing)


def _coded(column: NDArray[Any] | Varying, names: Sequence[str] | None) -> NDArray[Any] | Varying:
    is_code = not isinstance(column, Varying) and column.ndim == 1 and column.dtype.kind in "iu"
    return Coded.of(column, names) if names and is_code else column


def _class_names(tables: Sequence[Table]) -> Mapping[str, Sequence[str]]:
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


def suffix_of(path: str) -> str:
    """The file's kind; what follows ``?`` in a URL is for its server, and may be secret."""
    return PurePosixPath(path.partition("?")[0]).suffix.lower()


def _open(place: Place, wanted: Wanted, most: int | None) -> Table:
    """The table, of which no more than its first rows are read if ``most`` is given."""
    suffix = suffix_of(str(place))
    if suffix == ".parquet":
        return _parquet(place, most)
    if suffix in (".arrow", ".feather"):
        return _arrow(place)
    if suffix in (".jsonl", ".ndjson"):
        return json_table(place, wanted)
    return csv_table(place, suffix, wanted)


def _parquet(place: Place, most: int | None, names: Sequence[str] | None = None) -> Table:
    """The columns of these ``names``, by default all: of others nothing is read."""
    import pyarrow.parquet

    def batches() -> Iterator[Any]:
        # Of first rows, pages are read as they are needed; else whole columns of a group.
        with open_buffered(place) if most is None and names is None else open_read(place) as file:
            some = {} if most is None else {"buffer_size": _PAGE_BYTES, "pre_buffer": False}
            opened = pyarrow.parquet.ParquetFile(file, **some)
            groups = [opened.metadata.row_group(at) for at in range(opened.num_row_groups)]
            row_bytes = sum(group.total_byte_size for group in groups) / max(1, opened.metadata.num_rows)
            rows = max(1, min(most or _BATCH_ROWS, _BATCH_ROWS, int(_BATCH_BYTES / max(1, row_bytes))))
            for group in range(len(groups)):  # of all at once pyarrow would keep what it has read ahead
                yield from map(flat, opened.iter_batches(rows, [group], names))

    with open_buffered(place) as file:
        return Table(str(place), flat_schema(pyarrow.parquet.read_schema(file)), batches)


def _arrow(place: Place) -> Table:
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
        return Table(str(place), flat_schema(schema), batches)


def _with_folders(tables: Sequence[Table], in_folders: Sequence[Mapping[str, str]]) -> list[Table]:
    """The tables with the columns that the names of their folders say, unless they have them themselves:
    whole numbers if all are, else text."""
    import pyarrow as pa

    names = list(dict.fromkeys(name for values in in_folders for name in values))
    types = {name: _type_of([values.get(name, _MISSING) for values in in_folders]) for name in names}

    def added(table: Table, values: Mapping[str, str]) -> Table:
        new = {name: values.get(name, _MISSING) for name in names if name not in table.schema.names}
        schema = table.schema
        for name in new:
            schema = schema.append(pa.field(name, types[name]))
        return replace(table, schema=schema, batches=lambda: _extended(table, new, types))

    return [added(table, values) for table, values in zip(tables, in_folders, strict=True)]


def _type_of(values: Sequence[str]) -> Any:
    import pyarrow as pa

    given = [value for value in values if value != _MISSING]
    return pa.int64() if all(re.fullmatch(r"[-+]?\d{1,18}", value) for value in given) else pa.string()


def _extended(table: Table, new: Mapping[str, str], types: Mapping[str, Any]) -> Iterator[Any]:
    import pyarrow as pa

    for batch in table.batches():
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        for name, value in new.items():
            typed = None if value == _MISSING else int(value) if types[name] == pa.int64() else value
            columns[name] = pa.repeat(pa.scalar(typed, types[name]), batch.num_rows)
        yield pa.RecordBatch.from_pydict(columns)
