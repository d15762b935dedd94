"""``cerebro plan RUN``: when does a live run end, and which change would meet a deadline?"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from cerebro_elastic.errors import RunError
from cerebro_elastic.runs.forecast.rest import AS_IT_IS, Change, Outlook, RestOfRun
from cerebro_elastic.runs.recorded import RecordedRun
from cerebro_elastic.runs.results.result import check_search
from cerebro_elastic.system.words import duration_seconds


@dataclass(frozen=True, slots=True)
class LiveForecast:
    """The answer to a question about a live run."""

    run: str
    now: float
    """The time of the question: seconds since 1970."""
    as_it_is: Outlook
    changed: Outlook | None
    """The outlook with the change; ``None`` without one."""
    deadline: float | None = None
    """Seconds since 1970."""
    holds: bool | None = None
    """Whether the run ends by the deadline, with the change; ``None`` without one."""
    remedies: tuple[Outlook, ...] = ()
    """If the deadline is missed: the least changes that would meet it: fewer new nodes, or fewer stopped
    configs, would not."""


def forecast_live(run: RecordedRun, change: Change = AS_IT_IS, deadline: str | None = None) -> LiveForecast:
    """Simulate the rest of a live run from its present state.

    Raises:
        RunError: The run is not live or has not trained a unit yet, or has no such node, config or room for
            nodes; or the deadline cannot be read or is past.
    """
    status = run.status()
    if not status.live:
        raise RunError(
            f"run {run.id!r} is {status.phase}: only a live one can be forecast; `cerebro plan RECIPE --from "
            f"{run.id}` plays a recorded one through again"
        )
    now, result = time.time(), run.result
    check_search(result)
    until = None if deadline is None else read_deadline(deadline, now)
    return answer(RestOfRun(result.events, result.recipe, now), change, until)


def read_deadline(text: str, now: float) -> float:
    """A moment in seconds since 1970: from a duration such as ``2h30m``, or a date and time such as
    ``2026-12-01T08:00``, of this machine's time zone if it names none."""
    seconds = duration_seconds(text)
    try:
        moment = datetime.fromisoformat(text.strip()).timestamp() if seconds is None else now + seconds
        shown = datetime.fromtimestamp(moment).astimezone().isoformat(" ", "minutes")
    except (ValueError, OverflowError, OSError):
        raise RunError(
            f"the deadline {text[:80]!r} cannot be read: give a duration such as 90m or 2h30m, or a date and "
            "time such as 2026-12-01T08:00 or 2026-12-01T08:00+01:00"
        ) from None
    if moment <= now:
        raise RunError(f"the deadline {text[:80]!r}, {shown}, is past: give one that is to come")
    return moment


def answer(rest: RestOfRun, change: Change, deadline: float | None) -> LiveForecast:
    """The outlook with the change, beside that of the run as it is."""
    rest.check(change)
    as_it_is = rest.outlook(AS_IT_IS)
    changed = rest.outlook(change) if change != AS_IT_IS else None
    found = LiveForecast(rest.run, rest.now, as_it_is, changed, deadline)
    if deadline is None:
        return found
    holds = (changed or as_it_is).meets(deadline)
    return replace(found, holds=holds, remedies=() if holds else tuple(_remedies(rest, change, deadline)))


def _remedies(rest: RestOfRun, change: Change, deadline: float) -> Sequence[Outlook]:
    """The least number of additional nodes, and the least number of configs to stop, the worst first, with
    which the deadline is met; each only if one exists."""
    room = rest.room(change)
    left = [name for name in rest.worst if name not in change.stop]
    ways: list[tuple[int, Callable[[int], Change]]] = [
        (room, lambda number: replace(change, add=change.add + number)),
        (len(left) - 1, lambda number: replace(change, stop=(*change.stop, *left[:number]))),
    ]
    found = (_least(rest, most, way, deadline) for most, way in ways)
    return [outlook for outlook in found if outlook is not None]


def _least(rest: RestOfRun, most: int, way: Callable[[int], Change], deadline: float) -> Outlook | None:
    """The outlook of the least number, up to ``most``, that meets the deadline; ``None`` if none does."""
    numbers = range(1, most + 1)
    at = bisect_left(numbers, True, key=lambda number: rest.outlook(way(number)).meets(deadline))
    return rest.outlook(way(numbers[at])) if at < most else None
