"""What a machine costs, and when: a price trace as people give it, checked."""

from __future__ import annotations

import csv
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from cerebro_elastic.errors import RunError


@dataclass(frozen=True, slots=True)
class Segment:
    """A time with one price."""

    begins: float
    """Seconds since 1970."""
    ends: float
    price: float
    """Of an hour of a node."""

    def cost(self, begins: float, ends: float) -> float:
        """What a node costs in the part of the segment that lies between the two moments."""
        return self.price * max(0.0, min(ends, self.ends) - max(begins, self.begins)) / 3600


@dataclass(frozen=True, slots=True)
class PriceTrace:
    """What an hour of a spot machine costs: a price holds until the next row."""

    times: Sequence[float]
    """Seconds since 1970, ascending."""
    prices: Sequence[float]

    def segments(self, now: float, until: float, most: float = math.inf) -> list[Segment]:
        """The prices from ``now`` until a moment, each at ``most`` as on demand."""
        cuts = [now, *(time for time in self.times if now < time < until), until]
        prices = (self.prices[bisect_right(self.times, begins) - 1] for begins in cuts[:-1])
        return [Segment(*pair, min(price, most)) for pair, price in zip(pairwise(cuts), prices, strict=True)]

    def check_covers(self, now: float, deadline: float, where: str) -> None:
        """Raise ``RunError`` unless the trace has all prices from ``now`` to the ``deadline``."""
        if self.times[0] > now:
            raise RunError(
                f"{where} begins at {_shown(self.times[0])}, and it is {_shown(now)}: add a row with the "
                "present price"
            )
        if self.times[-1] < deadline:
            raise RunError(
                f"{where} ends at {_shown(self.times[-1])}, before the deadline, {_shown(deadline)}: add the "
                "prices that you expect until then; the time of the last row is the trace's end"
            )


def read_prices(path: Path) -> PriceTrace:
    """The trace in a CSV file with the columns ``time`` and ``price``.

    Raises:
        RunError: It cannot be read, or a row is not as it should be; the message names the row.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = [[cell.strip() for cell in row] for row in csv.reader(file)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise RunError(f"the prices {path} cannot be read: {error}; give a CSV file") from error
    rows = [(f"{path}, line {place}", row) for place, row in enumerate(lines, start=1) if any(row)]
    if not rows or rows[0][1] != ["time", "price"]:
        raise RunError(f"{path} has no line `time,price` at its top: give that, and lines like `{_EXAMPLE}`")
    if len(rows) < 3:
        raise RunError(f"{path} has too few prices: give two at least; the last time is the trace's end")
    pairs = [_pair(row, where) for where, row in rows[1:]]
    for ((before, _), (time, _)), (where, _) in zip(pairwise(pairs), rows[2:], strict=True):
        if time <= before:
            raise RunError(f"{where}: {_shown(time)} is not after {_shown(before)}: sort rows by their time")
    return PriceTrace([time for time, _ in pairs], [price for _, price in pairs])


_EXAMPLE = "2026-12-01T08:00,0.31"


def _pair(row: Sequence[str], where: str) -> tuple[float, float]:
    try:
        time, price = row
        pair = datetime.fromisoformat(time).timestamp(), float(price)
    except (ValueError, OverflowError, OSError):
        pair = (0.0, math.nan)
    if not 0 < pair[1] < math.inf:
        raise RunError(
            f"{where} is {','.join(row)[:80]!r}: give a date and time, and what an hour of a machine costs, "
            f"a number above 0, such as `{_EXAMPLE}`"
        )
    return pair


def _shown(moment: float) -> str:
    return datetime.fromtimestamp(moment).astimezone().isoformat(" ", "minutes")
