"""Tables as named columns: CSV, JSON lines, Parquet and Arrow. They are read by pyarrow (extra ``parquet``),
always: another reader would infer other dtypes. A batch of rows is in memory at a time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from numpy.typing import NDArray

from cerebro_elastic.data.categories import Coded
from cerebro_elastic.data.kinds.arrow_columns import (
    Table,
    cast_to,
    column_of,
    common_schema,
    flat,
    flat_schema,
    is_list,
    lengths_of,
)
from cerebro_elastic.data.kinds.kind import Facts, Wanted, is_wanted, suffix_of
from cerebro_elastic.data.kinds.text_tables import csv_table, json_table
from cerebro_elastic.data.ragged import Columns, Ragged
from cerebro_elastic.errors import DataError, MissingExtra, brief
from cerebro_elastic.registry import install_extra
from cerebro_elastic.system.files import CHUNK, Place, open_buffered, open_read

TABLES = (".csv", ".tsv", ".parquet", ".arrow", ".feather", ".jsonl", ".ndjson")
"""The suffixes of tables."""

_BATCH_BYTES = 4 * CHUNK
"""About so much of a table is in memory at a time."""
_BATCH_ROWS = 1 << 16
"""The largest number of rows of a batch."""
_PAGE_BYTES = 1 << 16
"""About so much of a column of Parquet is read at a time where only the first rows are."""


def look_at_table(place: Place, wanted: Wanted = None) -> Facts:
    """The facts of one file: of Parquet its footer says them, other files are read for them once. Raises
    ``DataError`` for what is no table."""
    if suffix_of(str(place)) == ".parquet":
        return _parquet_facts(place)
    table = _open(place, wanted, None)
    rows, lengths = 0, dict[str, set[int]]()
    for batch in table.batches():
        rows += batch.num_rows
        for name, values in zip(batch.schema.names, batch.columns, strict=True):
            if is_list(values.type):
                lengths.setdefault(name, set()).update(lengths_of(values))
    known = {name: found.pop() for name, found in lengths.items() if len(found) == 1}
    return Facts(rows, table.schema, known)


def read_table(place: Place, wanted: Wanted, most: int | None, schema: Any = None) -> Iterator[Columns]:
    """The ``wanted`` columns of one file, a piece of its rows at a time; of no more than its first ``most``
    rows. If a column that is named does not exist, all that can be read.

    Args:
        place: The file.
        wanted: The columns that are used.
        most: The number of rows.
        schema: The columns and their types; by default those of the file. Columns that the file lacks have no
            value in any row.
    """
    import pyarrow as pa

    table = _open(place, wanted, most)
    types = table.schema if schema is None else schema
    some = wanted is not None and all(name in types.names for name in wanted)
    fields = [field for field in types if not some or is_wanted(field.name, wanted)]
    if suffix_of(str(place)) == ".parquet" and some:
        table = _parquet(place, most, [field.name for field in fields if field.name in table.schema.names])
    classes = _class_names(table.schema)
    for batch in _first(table.batches(), most):
        columns: dict[str, NDArray[Any] | Ragged] = {}
        for field in fields:
            try:
                values = column_of(field.name, cast_to(batch, field))
            except (DataError, pa.ArrowException):
                if is_wanted(field.name, wanted):
                    raise
                continue
            columns[field.name] = _coded(values, classes.get(field.name))
        yield columns


def schema_of(tables: Sequence[tuple[str, Facts]], wanted: Wanted) -> Any:
    """The schema in which to read several files, which come with their names. Raises ``DataError`` if a file
    has no rows, or if files differ in the classes of a column."""
    known: dict[str, Sequence[str]] = {}
    for name, facts in tables:
        if not facts.rows:
            raise DataError(f"{name} has no rows, only the names of its columns: remove it, or give another")
        for column, classes in _class_names(facts.schema).items():
            if known.setdefault(column, classes) != classes:
                raise DataError(f"{name} has other classes of {column!r} than the files before it")
    return common_schema([(name, facts.schema) for name, facts in tables], wanted)


def _first(batches: Iterable[Any], most: int | None) -> Iterator[Any]:
    """The batches, which end after ``most`` rows."""
    for batch in batches:
        yield batch if most is None else batch.slice(0, most)
        if most is not None and (most := most - batch.num_rows) <= 0:
            return


def _coded(column: NDArray[Any] | Ragged, names: Sequence[str] | None) -> NDArray[Any] | Ragged:
    is_code = not isinstance(column, Ragged) and column.ndim == 1 and column.dtype.kind in "iu"
    return Coded.of(column, names) if names and is_code else column


def _class_names(schema: Any) -> Mapping[str, Sequence[str]]:
    """By column the names of its classes, where Hugging Face's ``datasets`` has written them."""
    text = (schema.metadata or {}).get(b"huggingface")
    features = json.loads(text).get("info", {}).get("features") or {} if text else {}
    return {
        name: feature["names"]
        for name, feature in features.items()
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" and feature.get("names")
    }


def _open(place: Place, wanted: Wanted, most: int | None) -> Table:
    """The table, of which no more than its first rows are read if ``most`` is given. Raises ``DataError`` if
    two of its columns have one name."""
    try:
        import pyarrow  # noqa: F401
    except ImportError as exc:
        raise MissingExtra(
            f"reading CSV, JSON lines, Parquet and Arrow needs pyarrow: {install_extra('parquet')}"
        ) from exc
    suffix = suffix_of(str(place))
    if suffix == ".parquet":
        table = _parquet(place, most)
    elif suffix in (".arrow", ".feather"):
        table = _arrow(place)
    else:
        is_json = suffix in (".jsonl", ".ndjson")
        table = json_table(place, wanted) if is_json else csv_table(place, suffix, wanted)
    if twice := [name for name, count in Counter(table.schema.names).items() if count > 1]:
        raise DataError(
            f"{place} has the column {brief(repr(twice[0]))} more than once: rename one of them (or is its "
            "first line a row? it must have the names)"
        )
    return table


def _parquet_facts(place: Place) -> Facts:
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
    return Facts(metadata.num_rows, schema, lengths, missing)


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
        return Table(flat_schema(pyarrow.parquet.read_schema(file)), batches)


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
        return Table(flat_schema(schema), batches)
