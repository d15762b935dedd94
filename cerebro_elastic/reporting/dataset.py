"""A dataset's description, in the terminal and as one HTML page that needs nothing else."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cerebro_elastic.data.manifest import Column, Split
from cerebro_elastic.data.reading.description import ClassBalance, Description, Value
from cerebro_elastic.reporting.page.report import page_environment
from cerebro_elastic.reporting.tables import brief, bytes_text
from cerebro_elastic.reporting.terminal import plain_table
from cerebro_elastic.system.words import counted, one_line

SPLIT_NAMES: dict[Split, str] = {"train": "training", "valid": "validation", "test": "test"}
_MOST_CLASSES = 20
_MOST_PARTITIONS, _MOST_PARTITIONS_ON_PAGE = 8, 100
_MOST_SAMPLES = 3
_MOST_VALUES = 6
_MOST_LETTERS = 80
_COLOUR_TYPES = {1: 0, 3: 2, 4: 6}
"""PNG's number for grey, RGB and RGBA, by the number of channels."""
_MOST_PIXELS = 256
"""A larger image is thinned until its longer side has no more."""
_ENCODED = {
    b"\x89PNG\r\n": "png",
    b"\xff\xd8\xff": "jpeg",
    b"GIF8": "gif",
    b"RIFF": "webp",
    b"BM": "bmp",
}
"""How files of pictures begin, and the types that a browser knows them by."""
_MOST_BYTES = 1_000_000
"""A larger encoded picture is not shown."""


def description_tables(description: Description) -> RenderableType:
    """Splits, columns, classes and samples."""
    parts = {"Rows": _splits(description), "Columns": _columns(description)}
    for balance in description.balances:
        parts[f"Classes of {one_line(balance.column)}"] = _balance(description, balance)
    parts["Samples"] = _samples(description)
    # A table breaks a title that is wider than itself.
    return Group(*(part for title, table in parts.items() for part in (Text(f"\n{title}", "italic"), table)))


def _splits(description: Description) -> Table:
    table = plain_table(
        *("split", "rows", "partitions", "rows of each", "size"), right=("rows", "partitions", "size")
    )
    for split in description.splits:
        rows = description.rows(split)
        size = bytes_text(description.split_bytes(split))
        table.add_row(SPLIT_NAMES[split], str(sum(rows)), str(len(rows)), rows_text(rows), size)
    return table


def rows_text(rows: Sequence[int], most: int = _MOST_PARTITIONS) -> str:
    """``20, 20, 19``; of more than ``most`` partitions the smallest and the largest number."""
    return ", ".join(map(str, rows)) if len(rows) <= most else f"{min(rows)} to {max(rows)}"


def _columns(description: Description) -> Table:
    table = plain_table("column", "dtype", "shape", "size", right=("size",))
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
    table = plain_table("class", *names, right=names)
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
    table = plain_table(*names)
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


def picture_url(value: NDArray[Any] | bytes) -> str | None:
    """The picture that a value of a column is, as a ``data:`` URL; ``None`` if it looks like none."""
    if isinstance(value, bytes):
        kind = next((kind for head, kind in _ENCODED.items() if value.startswith(head)), None)
        shown = kind is not None and len(value) <= _MOST_BYTES
        return f"data:image/{kind};base64,{base64.b64encode(value).decode()}" if shown else None
    if _axes(value.shape) is None or value.dtype.kind not in "biuf":
        return None
    return f"data:image/png;base64,{base64.b64encode(as_png(value)).decode()}"


def as_png(image: NDArray[Any]) -> bytes:
    """An image of shape ``HxW``, ``HxWxC`` or ``CxHxW`` as a PNG.

    What is not ``uint8`` is scaled: from 0 to 1 if it lies there, else from its least to its greatest value.
    """
    axes = _axes(image.shape)
    assert axes is not None, image.shape
    pixels = image.transpose(axes)
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    step = -(-max(pixels.shape[:2]) // _MOST_PIXELS)
    pixels = _bytes(pixels[::step, ::step])
    height, width, channels = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)  # each begins with the number of its filter
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0)
    chunks = (_chunk(b"IHDR", header), _chunk(b"IDAT", zlib.compress(rows)), _chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _axes(shape: Sequence[int]) -> tuple[int, ...] | None:
    """The axes of an image of this shape in the order height, width, channels; ``None`` if it is none."""
    channels, smallest = (1, 3, 4), 8
    match tuple(shape):
        case (height, width) if min(height, width) >= smallest:
            return (0, 1)
        case (height, width, last) if last in channels and min(height, width) >= smallest:
            return (0, 1, 2)
        case (first, height, width) if first in channels and min(height, width) >= smallest:
            return (1, 2, 0)
        case _:
            return None


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _bytes(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    if pixels.dtype == np.uint8:
        return np.ascontiguousarray(pixels)
    values = np.nan_to_num(pixels.astype(np.float64), posinf=0.0, neginf=0.0)
    low, high = float(values.min()), float(values.max())
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    return np.ascontiguousarray((values - low) / ((high - low) or 1.0) * 255).astype(np.uint8)
