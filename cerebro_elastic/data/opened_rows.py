"""Rows that are opened without chance, by a ``decode`` function or a dataset, are opened once.

Whether chance takes part is seen, not promised: a row is kept if opening it left all generators, and what the
user's functions keep, as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cerebro_elastic.data.kept_state import Watched
from cerebro_elastic.data.ragged import Index
from cerebro_elastic.data.records import MISSING, Records


def opened(
    index: Index, open_rows: Callable[[Index], list[Any]], records: Records, functions: Sequence[Any]
) -> list[Any]:
    """The partition's rows at ``index``: from the ``records``, or opened by ``open_rows``, which calls the
    user's ``functions``, and kept there."""
    rows = [records.get(place) for place in index.tolist()]
    missing = [at for at, row in enumerate(rows) if row is MISSING]
    if missing:
        with Watched([] if records.declined else functions, len(missing)) as watched:
            now = open_rows(index[missing])
        for at, row in zip(missing, now, strict=True):
            rows[at] = row
            if not records.declined:
                records.put(int(index[at]), row, watched.pays)
    return rows
