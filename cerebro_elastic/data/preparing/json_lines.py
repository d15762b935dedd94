"""Files of JSON lines as tables. They are read a block of lines at a time, which may differ in columns and
types."""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from cerebro_elastic.data.preparing.arrow_tables import Table, Wanted, common_schema, flat, is_wanted
from cerebro_elastic.errors import DataError, brief
from cerebro_elastic.system.files import CHUNK, Place, open_read

_BLOCK_BYTES = 4 * CHUNK
"""About so much of a file is in memory at a time."""


def json_table(place: Place, wanted: Wanted) -> Table:
    """A file of JSON lines. Its types are those of all lines: they are read once for that."""
    import pyarrow as pa

    texts: set[str] = set()

    def batches() -> Iterator[Any]:
        return _by_python(place, wanted, texts) if texts else _by_arrow(place)

    def schema() -> Any:
        return common_schema([(str(place), batch.schema) for batch in batches()], wanted, texts.add)

    try:
        common = schema()
    except (pa.ArrowInvalid, DataError):  # no JSON, or a column of several types
        texts.add("")
    return Table(str(place), schema() if texts else common, batches, texts.add)


def _blocks(place: Place) -> Iterator[tuple[int, list[bytes]]]:
    """The file's lines, and the number of the first of each block."""
    line = 1
    with io.BufferedReader(open_read(place), CHUNK) as file:
        while lines := file.readlines(_BLOCK_BYTES):
            if any(map(bytes.strip, lines)):
                yield line, lines
            line += len(lines)


def _by_arrow(place: Place) -> Iterator[Any]:
    """The rows by pyarrow, which is fast, and reads columns of one type only."""
    import pyarrow.json

    for _, lines in _blocks(place):
        text = b"".join(lines)
        options = pyarrow.json.ReadOptions(block_size=len(text) + 1)
        yield from map(flat, pyarrow.json.read_json(io.BytesIO(text), options).to_batches())


def _by_python(place: Place, wanted: Wanted, texts: Collection[str]) -> Iterator[Any]:
    for first, lines in _blocks(place):
        rows = [_row(place, line, text) for line, text in enumerate(lines, first) if text.strip()]
        yield _batch_of(place, rows, wanted, texts)


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


def _batch_of(place: Place, rows: Sequence[Mapping[str, Any]], wanted: Wanted, texts: Collection[str]) -> Any:
    """The rows as a record batch: a column of several types, or one of ``texts``, is text. One that cannot
    be is left out, unless it is ``wanted``."""
    import pyarrow as pa

    columns: dict[str, Any] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        try:
            columns[name] = pa.array(list(map(_text, values)) if name in texts else values)
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
