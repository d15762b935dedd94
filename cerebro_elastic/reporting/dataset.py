"""A dataset's description, in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cerebro_elastic.data.manifest import Column, Split
from cerebro_elastic.data.reading.description import ClassBalance, Description, Value
from cerebro_elastic.reporting.tables import brief, bytes_text
from cerebro_elastic.reporting.terminal import plain_table
from cerebro_elastic.system.words import counted, one_line

_SPLIT_NAMES: dict[Split, str] = {"train": "training", "valid": "validation", "test": "test"}
_MOST_CLASSES = 20
_MOST_PARTITIONS = 8
_MOST_SAMPLES = 3
_MOST_VALUES = 6
_MOST_LETTERS = 80


def description_tables(description: Description) -> RenderableType:
    """Splits, columns, classes and samples."""
    parts = {"Rows": _splits(description), "Columns": _columns(description)}
    for balance in description.balances:
        parts[f"Classes of {one_line(balance.column)}"] = _balance(description, balance)
    parts["Samples"] = _samples(description)
    # A table breaks a title wider than itself.
    return Group(*(part for title, table in parts.items() for part in (Text(f"\n{title}", "italic"), table)))


def _splits(description: Description) -> Table:
    table = plain_table(
        *("split", "rows", "partitions", "rows of each", "size"), right=("rows", "partitions", "size")
    )
    for split in description.splits:
        rows = description.rows(split)
        size = bytes_text(description.split_bytes(split))
        table.add_row(_SPLIT_NAMES[split], str(sum(rows)), str(len(rows)), _rows_text(rows), size)
    return table


def _rows_text(rows: Sequence[int]) -> str:
    """``20, 20, 19``; for many partitions, the smallest and the largest number."""
    return ", ".join(map(str, rows)) if len(rows) <= _MOST_PARTITIONS else f"{min(rows)} to {max(rows)}"


def _columns(description: Description) -> Table:
    table = plain_table("column", "dtype", "shape", "size", right=("size",))
    for column in description.manifest.columns:
        size = bytes_text(description.column_bytes[column.name])
        table.add_row(one_line(column.name), np.dtype(column.dtype).name, _shape_text(column), size)
    return table


def _shape_text(column: Column) -> str:
    """``3 x 32 x 32``; ``varying x 3`` for sequences of varying length; else the kind of the rows."""
    if column.kind == "bytes":
        return "encoded"
    lengths = ["varying"] if column.kind == "ragged" else []
    return " x ".join([*lengths, *map(str, column.shape)]) or "one number"


def _balance(description: Description, balance: ClassBalance) -> Table:
    names = [_SPLIT_NAMES[split] for split in description.splits]
    table = plain_table("class", *names, right=names)
    for value, name in list(balance.classes.items())[:_MOST_CLASSES]:
        shares = (_share_text(balance, split, value) for split in description.splits)
        table.add_row(one_line(name), *shares)
    if (more := len(balance.classes) - _MOST_CLASSES) > 0:
        table.add_row(f"and {counted(more, 'more class', 'more classes')}")
    return table


def _share_text(balance: ClassBalance, split: Split, value: int) -> str:
    """``80 (40.0 %)``: rows of a class in a split, and their share of it."""
    counts = balance.counts[split]
    rows = counts.get(value, 0)
    return f"{rows} ({100 * rows / (sum(counts.values()) or 1):.1f} %)"


def _samples(description: Description) -> Table:
    names = [one_line(column.name) for column in description.manifest.columns]
    table = plain_table(*names)
    for row in description.samples[:_MOST_SAMPLES]:
        table.add_row(*(_value_text(row[column.name]) for column in description.manifest.columns))
    return table


def _value_text(value: Value) -> str:
    """A row's value in a few words: an array's first numbers, text as it is."""
    if isinstance(value, bytes):
        with suppress(UnicodeDecodeError):
            return brief(one_line(value.decode()), _MOST_LETTERS)
        return bytes_text(len(value))
    flat = np.asarray(value).reshape(-1)
    first = flat[:_MOST_VALUES].tolist()
    shown = " ".join(f"{item:.4g}" if isinstance(item, float) else str(item) for item in first)
    return brief(shown + (" ..." if len(flat) > _MOST_VALUES else ""))
