"""The activities of each node, and the faults: the spans of a view, placed in time.

A visit has its start and its duration, by its node's clock. Other events have only their place in the
history. Their times are spread evenly between those of the visits before and after, within these limits:

- An event before an assignment happened before the visit of that assignment began.
- A quarantine lasted for its ordered seconds.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby

from cerebro_elastic.core.history.sentences import Mark
from cerebro_elastic.core.history.view import NodeSpan, RunView
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.units import Unit


@dataclass(frozen=True, slots=True)
class NodeTime:
    """A time in which a node was registered, or in quarantine after failures on it."""

    node: str
    start: float
    """When it began, in seconds of wall-clock time."""
    end: float
    """When it ended, in seconds of wall-clock time."""
    why: str
    """The failures; for an attempt, the result of a profile or the reason for the loss of its work. Empty for
    a visit."""

    @property
    def seconds(self) -> float:
        """Its duration."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Span(NodeTime):
    """A node's time on an attempt."""

    unit: Unit
    visit: Visit | None = None
    """The visit, if the attempt was committed."""
    lost: bool = False
    """Whether the attempt's work was lost."""


@dataclass(frozen=True, slots=True)
class Share:
    """A node's use of its time, in seconds."""

    node: str
    present: float
    """While it was registered."""
    training: float
    """While it trained the units of visits."""
    hopping: float
    """While it loaded states, handed them over to be saved, and waited for partitions."""
    profiling: float
    lost: float
    """In attempts that were not committed."""
    quarantined: float
    visits: int

    @property
    def idle(self) -> float:
        """While it did none of the above."""
        busy = self.training + self.hopping + self.profiling + self.lost
        return max(0.0, self.present - busy - self.quarantined)

    def values(self) -> dict[str, float]:
        """All but the node, by name, for machines."""
        return {**{name: value for name, value in asdict(self).items() if name != "node"}, "idle": self.idle}


@dataclass(frozen=True, slots=True)
class Timeline:
    """A run from the start of its first visit to the end of its last."""

    begin: float
    """When the first visit began, in seconds of wall-clock time; 0 without visits."""
    end: float
    """When the last visit ended, in seconds of wall-clock time; 0 without visits."""
    spans: Sequence[Span]
    """The attempts of all nodes, by node and time."""
    marks: Sequence[tuple[float, Mark]]
    """Events out of the ordinary, and their approximate times, in seconds of wall-clock time."""
    shares: Sequence[Share]
    """Each node's use of its time, by node."""
    quarantines: Sequence[NodeTime]
    """The quarantines of all nodes, within the times of their registration, in the order of their ends."""

    @property
    def seconds(self) -> float:
        """The duration of the run."""
        return self.end - self.begin


def timeline(view: RunView) -> Timeline:
    clock = _Clock(view)
    presence = [clock.time_of(span) for span in view.spans.presences]
    quarantines = list(_quarantines(view.spans.quarantines, clock, presence))
    visits = [
        Span(node, visit.started, visit.freed, "", visit.unit, visit)
        for visit in view.trained
        for node in visit.nodes
    ]
    spans = sorted(
        [*visits, *_without_visit(view, clock, visits, presence)], key=lambda span: (span.node, span.start)
    )
    by_node = {node: list(own) for node, own in groupby(spans, key=lambda span: span.node)}
    nodes = sorted({*by_node, *(each.node for each in presence)})
    return Timeline(
        begin=clock.begin,
        end=clock.end,
        spans=spans,
        marks=[(clock.at(number), mark) for number, mark in view.spans.marks],
        shares=[
            _share(node, _of(node, presence), by_node.get(node, []), _of(node, quarantines)) for node in nodes
        ],
        quarantines=quarantines,
    )


def _of(node: str, times: Sequence[NodeTime]) -> list[NodeTime]:
    return [each for each in times if each.node == node]


class _Clock:
    """Estimates when each event happened."""

    def __init__(self, view: RunView) -> None:
        noted = view.spans
        started = {visit.attempt: visit.started for visit in view.trained}
        self.begin = min(started.values(), default=0.0)
        first = next(iter(noted.attempts.values()), None)
        knots = dict(noted.known)
        if first is not None and first.began < min(knots, default=math.inf):
            knots = {first.began: self.begin, **knots}
        self._knots, self._known = list(knots), list(knots.values())
        self.end = max(self._known, default=self.begin)
        limits = {span.began: started[token] for token, span in noted.attempts.items() if token in started}
        latest = self._latest(noted.count, {**limits, **knots}, noted.quarantines)
        released = {span.ended: span for span in noted.quarantines if span.ordered is not None}
        self._times: list[float] = []
        now = self.begin
        for number in range(noted.count):
            over = released.get(number)
            if over is not None and over.ordered is not None:
                now = max(now, min(self._times[over.began] + over.ordered, latest[number]))
            now = max(now, knots.get(number, min(self._between(number), latest[number])))
            self._times.append(now)

    def at(self, number: int | None) -> float:
        """When the event with this number happened; the run's end for ``None``."""
        return self.end if number is None else self._times[number]

    def time_of(self, span: NodeSpan) -> NodeTime:
        return NodeTime(span.node, self.at(span.began), self.at(span.ended), span.why)

    def _latest(
        self, count: int, limits: Mapping[int, float], quarantines: Sequence[NodeSpan]
    ) -> list[float]:
        """The latest time at which each event can have happened. ``limits`` has the known times of events,
        and those of assignments."""
        begun = {span.began: span for span in quarantines if span.ordered is not None}
        limit = math.inf
        latest = [limit] * count
        for number in reversed(range(count)):
            limit = min(limit, limits.get(number, limit))
            span = begun.get(number)
            if span is not None and span.ended is not None and span.ordered is not None:
                limit = min(limit, latest[span.ended] - span.ordered)
            latest[number] = limit
        return latest

    def _between(self, number: int) -> float:
        """The event's time, by its place between events of known time."""
        place = bisect_left(self._knots, number)
        if place == 0:
            return self.begin
        if place == len(self._knots):
            return self.end
        before, after = self._knots[place - 1 : place + 1]
        began, ended = self._known[place - 1 : place + 1]
        return began + (number - before) / (after - before) * (ended - began)


def _without_visit(
    view: RunView, clock: _Clock, visits: Sequence[Span], presence: Sequence[NodeTime]
) -> Iterator[Span]:
    """Attempts that did not commit, and profiles. A node does one thing at a time, so an attempt begins after
    the node's last visit; and it ends when the node leaves."""
    ends: dict[str, list[float]] = {}
    for span in sorted(visits, key=lambda span: span.end):
        ends.setdefault(span.node, []).append(span.end)
    for attempt in view.spans.attempts.values():
        if attempt.ended is None:
            continue
        until = clock.at(attempt.ended if attempt.freed is None else attempt.freed)
        for node in attempt.attempt.nodes:
            ends_of_node = ends.get(node, [])
            earlier = ends_of_node[: bisect_left(ends_of_node, until)]
            start = max(clock.at(attempt.began), earlier[-1] if earlier else clock.begin)
            departure = next((each.end for each in _of(node, presence) if each.end > start), until)
            end = min(until, departure)
            yield Span(node, min(start, end), end, attempt.why, attempt.attempt.unit, lost=attempt.lost)


def _quarantines(
    spans: Sequence[NodeSpan], clock: _Clock, presence: Sequence[NodeTime]
) -> Iterator[NodeTime]:
    """The quarantines of nodes, within the times of their registration."""
    for quarantine in sorted(map(clock.time_of, spans), key=lambda each: each.end):
        for there in _of(quarantine.node, presence):
            start, end = max(quarantine.start, there.start), min(quarantine.end, there.end)
            if start < end:
                yield NodeTime(quarantine.node, start, end, quarantine.why)


def _share(
    node: str, presence: Sequence[NodeTime], spans: Sequence[Span], quarantines: Sequence[NodeTime]
) -> Share:
    visits = [span.visit for span in spans if span.visit is not None]
    present = sum(each.seconds for each in presence)
    training = sum(v.seconds for v in visits)
    hopping = sum(v.hop_seconds + v.fetch_seconds for v in visits)
    lost = sum(span.seconds for span in spans if span.lost)
    profiling = sum(span.seconds for span in spans if span.visit is None and not span.lost)
    quarantined = sum(quarantine.seconds for quarantine in quarantines)
    # A node may work before its registration is seen, or have another clock: it was present at least that
    # long.
    present = max(present, training + hopping + profiling + lost + quarantined)
    return Share(node, present, training, hopping, profiling, lost, quarantined, len(visits))
