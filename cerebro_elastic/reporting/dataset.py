"""A dataset's description, in the terminal and as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cerebro_elastic.data.manifest import Column, Split
from cerebro_elastic.data.reading.description import ClassBalance, Description, Value
from cerebro_elastic.reporting.page.report import page_environment
from cerebro_elastic.reporting.png import picture_url
from cerebro_elastic.reporting.tables import brief, bytes_text
from cerebro_elastic.system.words import counted, one_line

SPLIT_NAMES: dict[Split, str] = {"train": "training", "valid": "validation", "test": "test"}
_MOST_CLASSES = 20
_MOST_PARTITIONS, _MOST_PARTITIONS_ON_PAGE = 8, 100
_MOST_SAMPLES = 3
_MOST_VALUES = 6
_MOST_LETTERS = 80


def description_tables(description: Description) -> RenderableType:
    """Splits, columns, classes and samples."""
    parts = {"Rows": _splits(description), "Columns": _columns(description)}
    for balance in description.balances:
        parts[f"Classes of {one_line(balance.column)}"] = _balance(description, balance)
    parts["Samples"] = _samples(description)
    # A table breaks a title that is wider than itself.
    return Group(*(part for title, table in parts.items() for part in (Text(f"\n{title}", "italic"), table)))


def _table(names: Iterable[str], right: Iterable[str] = ()) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    numbers = set(right)
    for name in names:
        table.add_column(name, justify="right" if name in numbers else "left")
    return table


def _splits(description: Description) -> Table:
    table = _table(["split", "rows", "partitions", "rows of each", "size"], ["rows", "partitions", "size"])
    for split in description.splits:
        rows = description.rows(split)
        size = bytes_text(description.split_bytes(split))
        table.add_row(SPLIT_NAMES[split], str(sum(rows)), str(len(rows)), rows_text(rows), size)
    return table


def rows_text(rows: Sequence[int], most: int = _MOST_PARTITIONS) -> str:
    """``20, 20, 19``; of more than ``most`` partitions the smallest and the largest number."""
    return ", ".join(map(str, rows)) if len(rows) <= most else f"{min(rows)} to {max(rows)}"


def _columns(description: Description) -> Table:
    table = _table(["column", "dtype", "shape", "size"], ["size"])
    for column in description.manifest.columns:
        size = bytes_text(description.column_bytes[column.name])
        table.add_row(one_line(column.name), np.dtype(column.dtype).name, shape_text(column), size)
    return table


def shape_text(column: Column) -> str:
    """``3 x 32 x 32``; ``varying x 3`` of sequences of varying length; or what else a row is."""
    if column.kind == "bytes":
        return "encoded"
    lengths = ["varying"] if column.kind == "ragged" else []
    return " x ".join([*lengths, *map(str, column.shape)]) or "one number"


def _balance(description: Description, balance: ClassBalance) -> Table:
    names = [SPLIT_NAMES[split] for split in description.splits]
    table = _table(["class", *names], names)
    for value, name in list(balance.classes.items())[:_MOST_CLASSES]:
        shares = (share_text(balance, split, value) for split in description.splits)
        table.add_row(one_line(name), *shares)
    if (more := len(balance.classes) - _MOST_CLASSES) > 0:
        table.add_row(f"and {counted(more, 'more class', 'more classes')}")
    return table


def share_text(balance: ClassBalance, split: Split, value: int) -> str:
    """``80 (40.0 %)``: rows of a class in a split, and their share of it."""
    counts = balance.counts[split]
    rows = counts.get(value, 0)
    return f"{rows} ({100 * rows / (sum(counts.values()) or 1):.1f} %)"


def _samples(description: Description) -> Table:
    names = [one_line(column.name) for column in description.manifest.columns]
    table = _table(names)
    for row in description.samples[:_MOST_SAMPLES]:
        table.add_row(*(value_text(row[column.name]) for column in description.manifest.columns))
    return table


def value_text(value: Value) -> str:
    """A row's value in a few words: of an array its first numbers, text if it is text."""
    if isinstance(value, bytes):
        with suppress(UnicodeDecodeError):
            return brief(one_line(value.decode()), _MOST_LETTERS)
        return bytes_text(len(value))
    flat = np.asarray(value).reshape(-1)
    first = flat[:_MOST_VALUES].tolist()
    shown = " ".join(f"{item:.4g}" if isinstance(item, float) else str(item) for item in first)
    return brief(shown + (" ..." if len(flat) > _MOST_VALUES else ""))


def render_dataset(description: Description) -> str:
    """Write the page."""
    filters: dict[str, Callable[..., object]] = {
        "bytes": bytes_text,
        "dtype": lambda dtype: np.dtype(dtype).name,
        "rows": lambda rows: rows_text(rows, _MOST_PARTITIONS_ON_PAGE),
        "shape": shape_text,
        "value": value_text,
        "picture": picture_url,
    }
    environment = page_environment().overlay()
    environment.filters = environment.filters | filters
    return environment.get_template("dataset.html.j2").render(
        description=description,
        names=SPLIT_NAMES,
        share=share_text,
        classes={balance.column: balance.classes for balance in description.balances},
    )
