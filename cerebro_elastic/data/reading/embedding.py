"""Embedded rows: the results of ``data.embed``, usually a frozen model, for the rows of a partition.

They are computed in chunks of the partition's rows in stored order, since a model rounds by the number of
rows beside a row. So a row has the same embedding, bit for bit, in every config, epoch and batch, whichever
process has computed it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from cerebro_elastic.data.ragged import Index
from cerebro_elastic.data.reading.column_rows import Arrays
from cerebro_elastic.data.reading.made_once import Made, Make
from cerebro_elastic.data.reading.shared_records import MISSING, Records
from cerebro_elastic.errors import TaskError
from cerebro_elastic.generators import seeded

CHUNK = 64
"""The number of rows that ``embed`` gets at once. Results depend on it."""


@dataclass(frozen=True)
class EmbeddedRows:
    """The embedded rows of a partition."""

    chunks: Mapping[int, Any]
    """By number. They are mapped files where they were kept, so they are not put together."""

    def taken(self, rows: Index) -> Any:
        """A batch of these rows. Raises ``TaskError`` if their shapes differ."""
        places, inside = (each.tolist() for each in np.divmod(rows, CHUNK))

        def batched(*leaves: Any) -> Any:
            return stacked([leaf[row] for leaf, row in zip(leaves, inside, strict=True)])

        return leafwise(batched, *(self.chunks[place] for place in places))


def embedding(embed: Callable[[Any], Any], arrays: Arrays, make: Make) -> Make:
    """Makes the embedded rows of chunks whose rows ``make`` makes."""

    def embedded(numbers: Iterator[int], records: Records | None) -> Generator[Made, None, None]:
        begun: deque[int] = deque()

        def begin() -> Iterator[int]:
            for number in numbers:
                begun.append(number)
                yield number

        with closing(make(begin(), None)) as loaded:
            while True:
                with seeded(0):  # random draws here leave the generators as they were
                    if (rows := next(loaded, None)) is None:
                        return
                    chunk = embedded_chunk(embed, arrays, rows.batch)
                kept = records is not None and records.put(begun.popleft(), chunk)
                yield Made(MISSING if kept else chunk, kept)

    return embedded


def embedded_chunk(embed: Callable[[Any], Any], arrays: Arrays, batch: Any) -> Any:
    """The result of the user's ``embed`` for a batch of rows, on the CPU. Raises ``TaskError`` if the number
    of rows differs."""
    counts: list[int] = []
    leafwise(lambda leaf: counts.append(len(leaf)), batch)
    with _without_gradients(arrays):
        return leafwise(partial(_checked, rows=counts[0]), embed(batch))


def _without_gradients(arrays: Arrays) -> Any:
    if arrays == "numpy":
        return nullcontext()
    import torch

    return torch.no_grad()


def _checked(leaf: Any, rows: int) -> Any:
    shape = getattr(leaf, "shape", None)
    if not shape or shape[0] != rows:
        shown = type(leaf).__name__ if shape is None else list(shape)
        raise TaskError(
            f"data.embed returned {shown} for {rows} rows: return an array with as many rows, or tuples, "
            "lists and dicts of such arrays"
        )
    return leaf if isinstance(leaf, np.ndarray) else leaf.detach().cpu().contiguous()


def leafwise(act: Callable[..., Any], *trees: Any) -> Any:
    """The tree of the results of ``act`` for the leaves at each place of ``trees``: tuples, lists and
    dicts."""
    first = trees[0]
    if isinstance(first, Mapping):
        return {name: leafwise(act, *(tree[name] for tree in trees)) for name in first}
    if isinstance(first, tuple | list):
        items = [leafwise(act, *parts) for parts in zip(*trees, strict=True)]
        return type(first)(*items) if hasattr(first, "_fields") else type(first)(items)
    return act(*trees)


def stacked(rows: Sequence[Any]) -> Any:
    """The rows as one array. Raises ``TaskError`` if their shapes differ."""
    shapes = {tuple(row.shape) for row in rows}
    if len(shapes) > 1:
        raise TaskError(
            f"data.embed returned rows of shapes {sorted(shapes)}: all rows need one shape; return one "
            "vector of each sequence, or pad all of them to a fixed length"
        )
    if isinstance(rows[0], np.ndarray | np.generic):
        return np.stack(rows)
    import torch

    return torch.stack(list(rows))
