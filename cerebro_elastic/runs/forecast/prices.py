"""What a machine costs, and when: a price trace as people give it, checked."""

from __future__ import annotations

import csv
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from cerebro_elastic.errors import RunError, did_you_mean
from cerebro_elastic.system.words import counted

_COLUMNS = ("time", "price")
_MOST_ROWS = 100_000
_REGULAR = 0.75
"""The share of rows with one distance from which on a longer distance is a gap."""


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
            lines = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise RunError(f"the prices {path} cannot be read: {error}; give a CSV file") from error
    rows = [(place, row) for place, row in enumerate(lines, start=1) if any(cell.strip() for cell in row)]
    if not rows:
        raise RunError(f"the prices {path} are empty: give lines such as `time,price` and `{_EXAMPLE}`")
    header = [cell.strip() for cell in rows[0][1]]
    for name in header:
        if name not in _COLUMNS:
            near = did_you_mean(name, _COLUMNS)
            raise RunError(
                f"{path}, line {rows[0][0]}: there is no column {name!r}; {near}; this line is `time,price`, "
                "with a comma, and no other columns"
            )
    if sorted(header) != sorted(_COLUMNS):
        raise RunError(f"{path}, line {rows[0][0]}: the columns are `time,price`, each once")
    if not 2 <= len(rows) - 1 <= _MOST_ROWS:
        raise RunError(
            f"{path} has {counted(len(rows) - 1, 'price')}: give from 2 to {_MOST_ROWS}; the last row's time "
            "is the trace's end"
        )
    pairs = [_pair(row, header, f"{path}, line {place}") for place, row in rows[1:]]
    trace = PriceTrace([time for time, _ in pairs], [price for _, price in pairs])
    places = [f"{path}, line {place}" for place, _ in rows[1:]]
    for (before, time), where in zip(pairwise(trace.times), places[1:], strict=True):
        if time <= before:
            raise RunError(
                f"{where}: {_shown(time)} is not after {_shown(before)}: sort rows by their time, and "
                "give it with its zone where clocks are set back, such as 2026-10-25T02:00+01:00"
            )
    for problem in _gaps(trace.times, places):
        raise RunError(problem)
    return trace


_EXAMPLE = "2026-12-01T08:00,0.31"


def _pair(row: Sequence[str], header: Sequence[str], where: str) -> tuple[float, float]:
    if len(row) != len(header):
        raise RunError(f"{where}: {counted(len(row), 'value')}; give a time and a price, such as {_EXAMPLE}")
    cells = dict(zip(header, (cell.strip() for cell in row), strict=True))
    if not cells["price"]:
        raise RunError(f"{where}: the price is missing: give what a machine costs from {cells['time']} on")
    try:
        time = datetime.fromisoformat(cells["time"]).timestamp()
    except (ValueError, OverflowError, OSError):
        raise RunError(
            f"{where}: the time {cells['time'][:80]!r} cannot be read: give a date and time such as "
            "2026-12-01T08:00 or 2026-12-01T08:00+01:00"
        ) from None
    try:
        price = float(cells["price"])
    except ValueError:
        price = math.nan
    if not 0 < price < 1e9:
        raise RunError(
            f"{where}: the price is {cells['price'][:80]!r}: give what an hour of a machine costs, a number "
            "above 0 such as 0.31"
        )
    return time, price


def _gaps(times: Sequence[float], places: Sequence[str]) -> Iterator[str]:
    """Where rows are missing, if all others have one distance. The last row is the trace's end."""
    distances = [after - before for before, after in pairwise(times[:-1])]
    if not distances:
        return
    usual, number = Counter(distances).most_common(1)[0]
    if number < _REGULAR * len(distances):
        return
    for distance, (before, after), where in zip(distances, pairwise(times), places[1:], strict=False):
        if distance > usual:
            yield (
                f"{where}: no price between {_shown(before)} and {_shown(after)}, and rows are "
                f"{usual / 60:g} minutes apart: fill the gap; where the price stayed, repeat it"
            )


def _shown(moment: float) -> str:
    return datetime.fromtimestamp(moment).astimezone().isoformat(" ", "minutes")
