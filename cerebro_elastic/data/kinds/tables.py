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
    cast_to,
    column_of,
    common_schema,
    facts_of,
    flat,
    flat_schema,
)
from cerebro_elastic.data.kinds.kind import Facts, Look, Wanted, is_wanted, suffix_of
from cerebro_elastic.data.kinds.text_tables import csv_batches, csv_facts, json_batches, json_facts
from cerebro_elastic.data.ragged import Columns, Ragged
from cerebro_elastic.errors import DataError, MissingExtra, brief
from cerebro_elastic.registry import install_extra
from cerebro_elastic.system.files import CHUNK, Place, open_buffered, open_read

_ARROW, _JSON = (".arrow", ".feather"), (".jsonl", ".ndjson")
TEXT = (".csv", ".tsv", *_JSON)
TABLES = (*TEXT, ".parquet", *_ARROW)
"""The suffixes of tables, and of tables whose types only their rows show."""

_BATCH_BYTES = 4 * CHUNK
"""About so much of a table is in memory at a time."""
_BATCH_ROWS = 1 << 16
"""The largest number of rows of a batch."""
_PAGE_BYTES = 1 << 16
"""About so much of a column of Parquet is read at a time where only the first rows are."""


def look_at_table(place: Place, wanted: Wanted = None) -> Facts:
    """The facts of one file: Parquet has them in its footer, other files are read for them once. Raises
    ``DataError`` for a file that is no table, or has two columns of one name."""
    try:
        import pyarrow  # noqa: F401
    except ImportError as exc:
        raise MissingExtra(
            f"reading CSV, JSON lines, Parquet and Arrow needs pyarrow: {install_extra('parquet')}"
        ) from exc
    facts = _FACTS.get(suffix_of(str(place)), csv_facts)(place, wanted)
    if twice := [name for name, count in Counter(facts.schema.names).items() if count > 1]:
        raise DataError(
            f"{place} has the column {brief(repr(twice[0]))} more than once: rename one of them (or is its "
            "first line a row? it must have the names)"
        )
    return facts


def read_table(place: Place, wanted: Wanted, most: int | None, schema: Any = None) -> Iterator[Columns]:
    """The ``wanted`` columns of one file, a piece of its rows at a time; of no more than its first ``most``
    rows. If a column that is named does not exist, all that can be read. ``schema`` has the columns and their
    types, by default those of the file. Columns that it lacks have no value in any row."""
    import pyarrow as pa

    suffix = suffix_of(str(place))
    if schema is None:
        schema = _arrow_schema(place) if suffix in _ARROW else look_at_table(place, wanted).schema
    fields, names = list(schema), None
    if wanted is not None and all(name in schema.names for name in wanted):
        fields = [field for field in fields if is_wanted(field.name, wanted)]
        names = [field.name for field in fields]
    classes = _class_names(schema)
    for batch in _first(_batches(place, suffix, schema, most, names), most):
        if more := [field.name for field in batch.schema if _is_more(field, schema, wanted)]:
            raise _differs(place, f"it has a column {brief(repr(more[0]))}")
        columns: dict[str, NDArray[Any] | Ragged] = {}
        for field in fields:
            try:
                values = column_of(field.name, cast_to(batch, field))
            except (DataError, pa.ArrowException) as exc:
                if not is_wanted(field.name, wanted):
                    continue
                if isinstance(exc, DataError):
                    raise
                raise _differs(place, f"column {field.name!r}: {exc}") from exc
            columns[field.name] = _coded(values, classes.get(field.name))
        yield columns


def _batches(
    place: Place, suffix: str, schema: Any, most: int | None, names: Sequence[str] | None
) -> Iterator[Any]:
    if suffix == ".parquet":
        return _parquet_batches(place, most, names)
    if suffix in _ARROW:
        return _arrow_batches(place)
    if suffix in _JSON:
        return (batch for _, batch in json_batches(place))
    return _csv_batches(place, {field.name: field.type for field in schema})


def _csv_batches(place: Place, types: Mapping[str, Any]) -> Iterator[Any]:
    import pyarrow as pa

    try:
        yield from csv_batches(place, types)
    except pa.ArrowInvalid as exc:
        if "conversion error" not in str(exc):
            raise
        raise _differs(place, str(exc)) from exc


def _differs(place: Place, what: str) -> DataError:
    return DataError(
        f"{place} differs from the first shard ({what}): write it like the others, leave the column out by "
        "`columns`, or name the shards as `source`, whose types suit all rows"
    )


def schema_of(tables: Sequence[tuple[str, Facts]], wanted: Wanted) -> Any:
    """The schema for reading several files, given with their names. Raises ``DataError`` if a file has no
    rows, or if files differ in the classes of a column."""
    known: dict[str, Sequence[str]] = {}
    metadata = None
    for name, facts in tables:
        if facts.rows == 0:
            raise DataError(f"{name} has no rows, only the names of its columns: remove it, or give another")
        metadata = metadata or facts.schema.metadata
        for column, classes in _class_names(facts.schema).items():
            if known.setdefault(column, classes) != classes:
                raise DataError(f"{name} has other classes of {column!r} than the files before it")
    return common_schema([(name, facts.schema) for name, facts in tables], wanted).with_metadata(metadata)


def _is_more(field: Any, schema: Any, wanted: Wanted) -> bool:
    """Whether the field has values for a column that is used, and that ``schema`` lacks."""
    has_values = str(field.type) != "null"  # a structure that no row of the batch has
    return has_values and field.name not in schema.names and is_wanted(field.name, wanted)


def _first(batches: Iterable[Any], most: int | None) -> Iterator[Any]:
    """The batches of the first ``most`` rows."""
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


def _parquet_facts(place: Place, _wanted: Wanted) -> Facts:
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


def _parquet_batches(place: Place, most: int | None, names: Sequence[str] | None) -> Iterator[Any]:
    """The columns of these ``names``, by default all: of others nothing is read."""
    import pyarrow.parquet

    # Of first rows, pages are read as they are needed; else whole columns of a group.
    with open_buffered(place) if most is None and names is None else open_read(place) as file:
        some = {} if most is None else {"buffer_size": _PAGE_BYTES, "pre_buffer": False}
        opened = pyarrow.parquet.ParquetFile(file, **some)
        groups = [opened.metadata.row_group(at) for at in range(opened.num_row_groups)]
        row_bytes = sum(group.total_byte_size for group in groups) / max(1, opened.metadata.num_rows)
        rows = max(1, min(most or _BATCH_ROWS, _BATCH_ROWS, int(_BATCH_BYTES / max(1, row_bytes))))
        for group in range(len(groups)):  # for all at once pyarrow would keep the rows that it reads ahead
            yield from map(flat, opened.iter_batches(rows, [group], names))


def _arrow_facts(place: Place, _wanted: Wanted) -> Facts:
    return facts_of(_arrow_schema(place), _arrow_batches(place))


_FACTS: Mapping[str, Look] = {
    ".parquet": _parquet_facts,
    **dict.fromkeys(_ARROW, _arrow_facts),
    **dict.fromkeys(_JSON, json_facts),
}


def _arrow_schema(place: Place) -> Any:
    with _arrow(place) as (schema, _):
        return flat_schema(schema)


def _arrow_batches(place: Place) -> Iterator[Any]:
    with _arrow(place) as (_, stored):
        yield from map(flat, stored)


@contextmanager
def _arrow(place: Place) -> Iterator[tuple[Any, Iterable[Any]]]:
    """An Arrow file or, as Hugging Face's ``datasets`` writes it, an Arrow stream."""
    import pyarrow as pa

    with pa.memory_map(place.path) if place.local else pa.PythonFile(open_read(place), "r") as file:
        try:
            reader = pa.ipc.open_file(file)
        except pa.ArrowInvalid:
            file.seek(0)
            reader = pa.ipc.open_stream(file)
            yield reader.schema, reader
        else:
            yield reader.schema, map(reader.get_batch, range(reader.num_record_batches))
