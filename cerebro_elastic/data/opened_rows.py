"""Rows that are opened without chance, by a ``decode`` function or a dataset, are opened once.

Whether chance takes part is seen, not promised: a row is kept if opening it left all generators as they were.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from cerebro_elastic.data.ragged import Index
from cerebro_elastic.data.records import MISSING, Records
from cerebro_elastic.data.seeding import generator_states

_FIXED_SECONDS, _BYTES_PER_SECOND = 2e-5, 1e9
"""What it costs to keep a value and to take it again: so long, and so many bytes per second."""


def worth_keeping(seconds: float, size: int) -> bool:
    """Whether a value of ``size`` bytes that took so many seconds to make costs less when it is kept."""
    return seconds > _FIXED_SECONDS + size / _BYTES_PER_SECOND


def opened(index: Index, open_rows: Callable[[Index], list[Any]], records: Records) -> list[Any]:
    """The partition's rows at ``index``: from the ``records``, or opened by ``open_rows`` and kept there."""
    rows = [records.get(place) for place in index.tolist()]
    missing = [at for at, row in enumerate(rows) if row is MISSING]
    if missing:
        before, began = generator_states(), time.perf_counter()
        now = open_rows(index[missing])
        seconds = (time.perf_counter() - began) / len(missing)
        drew = generator_states() != before
        for at, row in zip(missing, now, strict=True):
            rows[at] = row
            if not records.declined:
                records.put(int(index[at]), row, lambda size: not drew and worth_keeping(seconds, size))
    return rows
