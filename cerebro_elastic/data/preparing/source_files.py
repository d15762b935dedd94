"""Which files a source is, and the columns that the names of their folders say, as Spark writes them:
``year=2024/month=1/rows.parquet``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from cerebro_elastic.data.preparing.arrow_tables import Table
from cerebro_elastic.errors import DataError
from cerebro_elastic.system.files import Place, exists, folders, literal_folder, read

_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_VALID = ("valid", "val", "validation")
_STATE = "state.json"
"""Beside the Arrow files of a dataset that Hugging Face's ``datasets`` has saved: which files these are."""


def numbered(place: Place) -> list[Place]:
    """The files of a name such as ``shard-{000..015}.tar``, or the place itself."""
    match = _RANGE.search(place.path)
    if match is None:
        return [place]
    first, last = map(int, match.groups())
    if last < first:
        raise DataError(f"{place} counts down from {match[1]} to {match[2]}: give the smaller number first")
    before, behind = place.path[: match.start()], place.path[match.end() :]
    names = (f"{before}{number:0{len(match[1])}d}{behind}" for number in range(first, last + 1))
    return [part for name in names for part in numbered(Place(place.fs, name))]


def folder_of_wildcards(place: Place) -> str:
    """The folder in which the wildcards and numbers of a name are looked up."""
    match = _RANGE.search(place.path)
    return literal_folder(place if match is None else Place(place.fs, place.path[: match.start()] + "*"))


def split_folders(place: Place) -> tuple[Place, Place] | None:
    """The folders of training and validation data in a folder that has both, by their usual names."""
    names = set(folders(place))
    valid = [name for name in _VALID if name in names]
    if "train" not in names or not valid:
        return None
    if len(valid) > 1:
        raise DataError(
            f"{place} has {' and '.join(valid)}: name one of them as `valid`, and train as `source`"
        )
    return place / "train", place / valid[0]


def without_others(folder: Place, files: Sequence[Place]) -> list[Place]:
    """The files of a dataset that ``datasets`` has saved in the folder, without its caches; else all."""
    if not exists(folder / _STATE):
        return list(files)
    state = json.loads(read(folder / _STATE))
    if state.get("_indices_data_files"):
        raise DataError(
            f"the dataset {folder} is a selection of other rows: call flatten_indices(), and save it again"
        )
    return [folder / entry["filename"] for entry in state.get("_data_files", ())] or list(files)


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
