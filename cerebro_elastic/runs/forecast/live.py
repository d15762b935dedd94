"""``cerebro plan RUN``: when does a live run end, what would meet a deadline, and when are nodes cheapest?"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from math import inf
from pathlib import Path

from cerebro_elastic.errors import RunError
from cerebro_elastic.runs.forecast.prices import PriceTrace, read_prices
from cerebro_elastic.runs.forecast.rest import AS_IT_IS, Change, Outlook, RestOfRun
from cerebro_elastic.runs.forecast.spot import MARGIN, NodeCount, Played, SpotPlan, cheapest, with_changes
from cerebro_elastic.runs.recorded import RecordedRun
from cerebro_elastic.runs.results.result import check_search
from cerebro_elastic.system.words import duration_seconds, option

_EACH = 8
"""Up to this number of nodes a plan tries each number, and some of those above it."""


@dataclass(frozen=True, slots=True)
class LiveForecast:
    """The answer to a question about a live run."""

    run: str
    now: float
    """When it was asked: seconds since 1970."""
    as_it_is: Outlook
    changed: Outlook | None
    """With the change, if one was asked about."""
    deadline: float | None = None
    """Seconds since 1970."""
    holds: bool | None = None
    """Whether the run ends by the deadline, with the change; ``None`` without one."""
    remedies: tuple[Outlook, ...] = ()
    """If the deadline is missed: what would meet it. Fewer nodes, or fewer stopped configs, would not."""
    prices: bool = False
    """Whether a plan by prices was asked for."""
    plan: SpotPlan | None = None
    """With prices: when to have how many nodes, so that the deadline is met and the run costs least;
    ``None`` without prices, or if none meets it."""


def forecast_live(
    run: RecordedRun,
    change: Change = AS_IT_IS,
    deadline: str | None = None,
    prices: Path | None = None,
    now: float | None = None,
) -> LiveForecast:
    """Simulate the rest of a live run from its present state.

    Raises:
        RunError: The run is not live or has not trained a unit yet, or has no such node, config or room for
            nodes; the deadline cannot be read or is past; or the prices cannot be read, or do not reach from
            now to the deadline.
    """
    status = run.status()
    if not status.live:
        raise RunError(
            f"run {run.id!r} is {status.phase}: only a live one can be forecast; `cerebro plan RECIPE --from "
            f"{run.id}` plays a recorded one through again"
        )
    now = time.time() if now is None else now
    result = run.result
    check_search(result)
    until = None if deadline is None else read_deadline(deadline, now)
    trace = None
    if prices is not None:
        trace = read_prices(prices)
        until = until or result.recipe.search.budget.until
        if until is None or until <= now:
            raise RunError(
                f"{option('prices')} needs a deadline that is to come: give {option('deadline')}; the plan "
                "is the cheapest that meets it"
            )
        if change.add or change.lose:
            raise RunError(
                f"{option('prices')} says itself when nodes join and leave: leave out {option('nodes')} and "
                f"{option('lose')}"
            )
        trace.check_covers(now, until, f"the trace {prices}")
    return answer(RestOfRun(result.events, result.recipe, now, trace), change, until)


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
    """What is asked about, beside the run as it is."""
    rest.check(change)
    as_it_is = rest.outlook(AS_IT_IS)
    changed = rest.outlook(change) if change != AS_IT_IS else None
    found = LiveForecast(rest.run, rest.now, as_it_is, changed, deadline)
    if deadline is None:
        return found
    holds = (changed or as_it_is).meets(deadline)
    if rest.prices is not None:
        plan = _cheapest(rest, change, rest.prices, deadline)
        return replace(found, holds=holds, prices=True, plan=plan)
    return replace(found, holds=holds, remedies=() if holds else tuple(_remedies(rest, change, deadline)))


def _cheapest(rest: RestOfRun, change: Change, prices: PriceTrace, deadline: float) -> SpotPlan | None:
    """The cheapest plan that meets the deadline less a margin, or less what can be had of it."""
    segments = prices.segments(rest.now, deadline, rest.on_demand)
    most = rest.most_nodes
    numbers = [n for n in range(1, most + 1) if n <= _EACH or n % (most // _EACH) == 0 or n == most]
    now = [NodeCount(rest.now, most, 0.0)]  # also where the run has no nodes just now
    whole = rest.engine(change, now, unbounded=True)
    whole.play()
    left = [visit for visit in whole.visits if visit.freed > rest.now]
    work = sum((visit.freed - max(visit.started, rest.now)) * len(visit.nodes) for visit in left)
    margin = MARGIN * (deadline - rest.now) + 2 * max((visit.seconds for visit in left), default=0.0)

    def play(counts: Sequence[NodeCount]) -> Played:
        engine = rest.engine(change, counts, unbounded=True)
        engine.play()
        return engine.played()

    soonest = whole.played().ends or inf
    by = min(deadline, max(deadline - margin, soonest))
    plan = cheapest(play, segments, by, numbers, work)
    return None if plan is None else with_changes(plan, rest.present)


def _remedies(rest: RestOfRun, change: Change, deadline: float) -> Sequence[Outlook]:
    """The least number of nodes more, and the least number of configs less, the worst first, with which
    the deadline is met; each only if there is one."""
    room = rest.room(change)
    left = [name for name in rest.worst if name not in change.stop]
    ways: list[tuple[int, Callable[[int], Change]]] = [
        (room, lambda number: replace(change, add=change.add + number)),
        (len(left) - 1, lambda number: replace(change, stop=(*change.stop, *left[:number]))),
    ]
    found = (_least(most, partial(_played, rest, way), deadline) for most, way in ways)
    return [outlook for outlook in found if outlook is not None]


def _played(rest: RestOfRun, way: Callable[[int], Change], number: int) -> Outlook:
    return rest.outlook(way(number))


def _least(most: int, play: Callable[[int], Outlook], deadline: float) -> Outlook | None:
    """The outlook of the least number, up to ``most``, that meets the deadline, by bisection."""
    best, low, high = None, 1, 1
    while best is None and low <= most:
        high = min(high, most)
        outlook = play(high)
        if outlook.meets(deadline):
            best = outlook
        else:
            low, high = high + 1, high * 2
    while best is not None and low < high:
        middle = (low + high) // 2
        outlook = play(middle)
        if outlook.meets(deadline):
            best, high = outlook, middle
        else:
            low = middle + 1
    return best
