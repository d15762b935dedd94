"""Columns that the names of folders say, as Spark writes them: ``year=2024/month=1/rows.parquet``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from cerebro_elastic.data.table import Table
from cerebro_elastic.system.files import Place

_FOLDER = re.compile(r"([^=]+)=(.*)")
_MISSING = "__HIVE_DEFAULT_PARTITION__"
"""What stands for a missing value."""


def folder_columns(folder: str, files: Sequence[Place]) -> list[dict[str, str]]:
    """By file, the columns in the names of its folders below ``folder``; an empty list if there are none."""
    names = [file.path.removeprefix(folder).strip("/").split("/")[:-1] for file in files]
    found = [
        {unquote(match[1]): unquote(match[2]) for name in inside if (match := _FOLDER.fullmatch(name))}
        for inside in names
    ]
    return found if any(found) else []


def with_folders(tables: Sequence[Table], in_folders: Sequence[Mapping[str, str]]) -> list[Table]:
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
