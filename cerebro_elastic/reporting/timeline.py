"""Reads from the history what each node did when, and what went wrong.

A visit says when it began and how long it took, by its node's clock. Other events have only their place in
the history. Their times are spread evenly between those of the visits before and after, within these limits:

- An event before an assignment happened before the visit of that assignment began.
- A quarantine lasted for the seconds that it was ordered for.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TypeAlias

from cerebro_elastic.core.model.attempts import Attempt, Visit
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.events import (
    ConfigEnded,
    ConfigResumed,
    Event,
    LeaderChanged,
    NodeDraining,
    NodeJoined,
    NodeLeft,
    NodeQuarantined,
    NodeReleased,
    ProfileDone,
    RunEnded,
    RunExtended,
    StateRead,
    UnitAssigned,
    UnitCommitted,
    UnitFailed,
    UnitTrained,
    UnitWithdrawn,
)
from cerebro_elastic.core.model.run import Extension
from cerebro_elastic.core.model.units import Unit
from cerebro_elastic.system.words import counted

Interval: TypeAlias = tuple[float, float]
"""Two moments of wall-clock time."""


@dataclass(frozen=True, slots=True)
class Span:
    """The time that a node spent on an attempt."""

    node: str
    start: float
    """When it began, in seconds of wall-clock time."""
    end: float
    """When it ended, in seconds of wall-clock time."""
    unit: Unit
    visit: Visit | None = None
    """The visit, if the attempt was committed."""
    why: str = ""
    """The result of a profile, or why the attempt's work was lost; empty for a visit."""
    lost: bool = False
    """Whether the attempt's work was lost."""

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Mark:
    """An event out of the ordinary."""

    at: float
    """About when it happened, in seconds of wall-clock time."""
    text: str
    """What happened, as a sentence."""
    node: str | None = None
    """The node on which it happened, if it was on one."""
    fault: bool = True
    """Whether it is a fault, not a request or a recovery."""


@dataclass(frozen=True, slots=True)
class QuarantineSpan:
    """A time in which a node got no units, after failures on it."""

    node: str
    start: float
    """When it began, in seconds of wall-clock time."""
    end: float
    """When it ended, in seconds of wall-clock time."""
    why: str
    """The failures."""

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Share:
    """What a node did with its time, in seconds."""

    node: str
    present: float
    """While it was registered."""
    training: float
    """While it trained the units of visits."""
    hopping: float
    """While it loaded states, handed them over to be saved, and waited for partitions."""
    profiling: float
    """While it profiled strategies."""
    lost: float
    """In attempts that were not committed."""
    quarantined: float
    """In quarantine."""
    visits: int
    """How many visits it took part in."""

    @property
    def idle(self) -> float:
        """While it did none of these."""
        busy = self.training + self.hopping + self.profiling + self.lost
        return max(0.0, self.present - busy - self.quarantined)

    def values(self) -> dict[str, float]:
        """All but the node, by name, for machines."""
        return {**{name: value for name, value in asdict(self).items() if name != "node"}, "idle": self.idle}


@dataclass(frozen=True, slots=True)
class Timeline:
    """A run from the begin of its first visit to the end of its last."""

    begin: float
    """When the first visit began, in seconds of wall-clock time; 0 without visits."""
    end: float
    """When the last visit ended, in seconds of wall-clock time; 0 without visits."""
    spans: Sequence[Span]
    """The attempts of all nodes, by node and time."""
    marks: Sequence[Mark]
    """Events out of the ordinary, in their order."""
    shares: Sequence[Share]
    """What each node did with its time, by node."""
    quarantines: Sequence[QuarantineSpan] = field(default=())
    """The quarantines of all nodes, in the order of their ends."""

    @property
    def seconds(self) -> float:
        """How long the run took."""
        return self.end - self.begin


def timeline(events: Sequence[Event]) -> Timeline:
    """The timeline of a run with this history."""
    visits = _visits(events)
    clock = _Clock(events)
    attempts = {
        event.revision: (index, event.attempt)
        for index, event in enumerate(events)
        if isinstance(event, UnitAssigned)
    }
    visit_spans = [
        Span(node, visit.started, visit.freed, visit.unit, visit) for visit in visits for node in visit.nodes
    ]
    presence = _present(events, clock)
    spans = sorted(
        [*visit_spans, *_without_visit(events, attempts, clock, visit_spans, presence)],
        key=lambda span: (span.node, span.start),
    )
    by_node: dict[str, list[Span]] = {node: [] for node in presence}
    for span in spans:
        by_node.setdefault(span.node, []).append(span)
    quarantines = list(_quarantines(events, clock, presence))
    return Timeline(
        begin=clock.begin,
        end=clock.end,
        spans=spans,
        marks=list(_marks(events, clock)),
        shares=[
            _share(node, presence.get(node, []), by_node[node], [q for q in quarantines if q.node == node])
            for node in sorted(by_node)
        ],
        quarantines=quarantines,
    )


def _visits(events: Sequence[Event]) -> list[Visit]:
    """The visits that count. A restored snapshot undoes those that it does not contain."""
    visits: list[Visit] = []
    for event in events:
        match event:
            case StateRead(visits=visits_so_far):
                visits = list(visits_so_far)
            case UnitCommitted(visit=visit):
                visits.append(visit)
    return visits


class _Clock:
    """Estimates when each event happened."""

    def __init__(self, events: Sequence[Event]) -> None:
        visits = _visits(events)
        self.begin = min((visit.started for visit in visits), default=0.0)
        knots = dict(_knots(events, self.begin))
        self._knots, self._known = list(knots), list(knots.values())
        self.end = max(self._known, default=self.begin)
        latest = _latest(events, knots, {visit.attempt: visit.started for visit in visits})
        self._times: list[float] = []
        now, until = self.begin, dict[str, float]()
        for index, (event, limit) in enumerate(zip(events, latest, strict=True)):
            if isinstance(event, NodeReleased):
                now = max(now, min(until.pop(event.node, now), limit))
            now = max(now, knots.get(index, min(self._between(index), limit)))
            if isinstance(event, NodeQuarantined):
                until[event.node] = now + event.seconds
            self._times.append(now)

    def at(self, index: int) -> float:
        return self._times[index]

    def _between(self, index: int) -> float:
        """By its place between the events whose time is known."""
        place = bisect_left(self._knots, index)
        if place == 0:
            return self.begin
        if place == len(self._knots):
            return self.end
        (before, after), (began, ended) = (
            self._knots[place - 1 : place + 1],
            self._known[place - 1 : place + 1],
        )
        return began + (index - before) / (after - before) * (ended - began)


def _knots(events: Sequence[Event], begin: float) -> Iterator[tuple[int, float]]:
    """The events whose time is known, and that time: the first assignment, and commits, by the latest end
    so far."""
    latest, begun = begin, False
    for index, event in enumerate(events):
        match event:
            case StateRead(visits=visits) if visits:
                latest = max(latest, *(visit.ended for visit in visits))
            case UnitCommitted(visit=visit):
                latest = max(latest, visit.ended)
            case UnitAssigned() if not begun:
                pass
            case _:
                continue
        begun = True
        yield index, latest


def _latest(events: Sequence[Event], knots: Mapping[int, float], started: Mapping[int, float]) -> list[float]:
    """The latest time at which each event can have happened. ``started`` has the begins of visits by their
    attempts' tokens."""
    limit, released = math.inf, dict[str, float]()
    limits = []
    for index, event in reversed(list(enumerate(events))):
        limit = min(limit, knots.get(index, limit))
        match event:
            case UnitAssigned(revision=token):
                limit = min(limit, started.get(token, limit))
            case NodeReleased(node=name):
                released[name] = limit
            case NodeQuarantined(node=name, seconds=seconds):
                limit = min(limit, released.pop(name, math.inf) - seconds)
        limits.append(limit)
    return limits[::-1]


def _without_visit(
    events: Sequence[Event],
    attempts: Mapping[int, tuple[int, Attempt]],
    clock: _Clock,
    visit_spans: Sequence[Span],
    presence: Mapping[str, Sequence[Interval]],
) -> Iterator[Span]:
    """Attempts that did not commit, and profiles. A node does one thing at a time, so an attempt begins after
    the node's last visit; and it ends when the node leaves."""
    trained = {event.token: index for index, event in enumerate(events) if isinstance(event, UnitTrained)}
    ends: dict[str, list[float]] = {}
    for span in sorted(visit_spans, key=lambda span: span.end):
        ends.setdefault(span.node, []).append(span.end)
    for index, event in enumerate(events):
        match event:
            case UnitFailed(failure=failure):
                token, why, lost = failure.attempt, f"failed, {failure.kind.value}: {failure.story}", True
            case UnitWithdrawn(token=token):
                why, lost = "withdrawn: what it did was lost", True
            case ProfileDone(profile=profile):
                result = profile.refusal or f"a unit takes {profile.seconds:.3g} s"
                token, why, lost = profile.attempt, f"{profile.strategy}: {result}", False
            case _:
                continue
        if token not in attempts:
            continue
        began, attempt = attempts[token]
        until = clock.at(trained.get(token, index))  # its node was free from then on
        for node in attempt.nodes:
            ends_of_node = ends.get(node, [])
            earlier = ends_of_node[: bisect_left(ends_of_node, until)]
            before = earlier[-1] if earlier else clock.begin
            start = max(clock.at(began), before)
            departure = next((end for _, end in presence.get(node, ()) if end > start), until)
            end = min(until, departure)
            yield Span(node, min(start, end), end, attempt.unit, why=why, lost=lost)


def _present(events: Sequence[Event], clock: _Clock) -> dict[str, list[Interval]]:
    """The times in which each node was registered."""
    since: dict[str, float] = {}
    presence: dict[str, list[Interval]] = {}

    def left(node: str, at: float) -> None:
        presence.setdefault(node, []).append((since.pop(node, at), at))

    for index, event in enumerate(events):
        at = clock.at(index)
        match event:
            case NodeJoined(node=node):
                since.setdefault(node.name, at)
            case NodeLeft(node=name):
                left(name, at)
            case StateRead(state=state):
                for name in since.keys() - state.nodes.keys():
                    left(name, at)
                for name in state.nodes.keys() - since.keys():
                    since[name] = at
    for name in list(since):
        left(name, clock.end)
    return presence


def _quarantines(
    events: Sequence[Event], clock: _Clock, presence: Mapping[str, Sequence[Interval]]
) -> Iterator[QuarantineSpan]:
    """The quarantines of nodes, as far as the nodes were registered."""
    since: dict[str, tuple[float, str]] = {}

    def over(node: str, at: float) -> Iterator[QuarantineSpan]:
        begin, why = since.pop(node, (at, ""))
        for joined, left in presence.get(node, ()):
            start, end = max(begin, joined), min(at, left)
            if start < end:
                yield QuarantineSpan(node, start, end, why)

    for index, event in enumerate(events):
        at = clock.at(index)
        match event:
            case NodeQuarantined(node=name, why=why):
                since[name] = (at, why)
            case NodeReleased(node=name):
                yield from over(name, at)
            case StateRead(state=state):
                for name in since.keys() - state.quarantined.keys():
                    yield from over(name, at)
                for name in state.quarantined.keys() - since.keys():
                    since[name] = (at, state.quarantined[name])
    for name in list(since):
        yield from over(name, clock.end)


def _share(
    node: str, presence: Sequence[Interval], spans: Sequence[Span], quarantines: Sequence[QuarantineSpan]
) -> Share:
    visits = [span.visit for span in spans if span.visit is not None]
    present = sum(left - joined for joined, left in presence)
    training = sum(v.seconds for v in visits)
    hopping = sum(v.hop_seconds + v.fetch_seconds for v in visits)
    lost = sum(span.seconds for span in spans if span.lost)
    profiling = sum(span.seconds for span in spans if span.visit is None and not span.lost)
    quarantined = sum(quarantine.seconds for quarantine in quarantines)
    # A node may work before its registration is seen, or have another clock: it was present at least so long.
    present = max(present, training + hopping + profiling + lost + quarantined)
    return Share(node, present, training, hopping, profiling, lost, quarantined, len(visits))


def _extended_text(extension: Extension) -> str:
    more = extension.epochs > extension.epochs_before
    length = f" to {extension.epochs} epochs" if more else ""
    by = f" by {extension.by}" if extension.by else ""
    return f"the run was extended{length}{by}: {counted(len(extension.configs), 'config')} to go on"


def _marks(events: Sequence[Event], clock: _Clock) -> Iterator[Mark]:
    """Events that deserve a mark. Nodes that come and go before the first assignment, or after the run's end
    until it is extended, do not."""
    leaving: set[str] = set()
    configs: dict[int, str] = {}
    ended = False
    for index, event in enumerate(events):
        at = clock.at(index)
        match event:
            case RunExtended(extension=extension):
                ended = False
                yield Mark(at, _extended_text(extension), fault=False)
            case RunEnded():
                ended = True
                configs.clear()
            case _ if ended:
                continue
            case UnitAssigned(revision=token, attempt=attempt):
                configs[token] = attempt.unit.config
            case NodeDraining(node=name, grace=grace):
                leaving.add(name)
                yield Mark(at, f"{name} was asked to leave within {grace:g} s", name, fault=False)
            case NodeLeft(node=name) if name in leaving:
                leaving.discard(name)
                yield Mark(at, f"{name} left", name, fault=False)
            case NodeLeft(node=name) if configs:
                yield Mark(at, f"{name} was lost", name)
            case NodeJoined(node=node) if configs:
                yield Mark(at, f"{node.name} joined", node.name, fault=False)
            case NodeQuarantined(node=name, why=why, seconds=seconds):
                yield Mark(at, f"{name} was quarantined for {seconds:g} s: {why}", name)
            case NodeReleased(node=name):
                yield Mark(at, f"{name} got units again", name, fault=False)
            case UnitFailed(failure=failure):
                text = (
                    f"{failure.unit.config} failed on {failure.node}, {failure.kind.value}: {failure.story}"
                )
                yield Mark(at, text, failure.node)
            case UnitWithdrawn(node=name, token=token):
                config = configs.get(token, "a config")
                yield Mark(at, f"{config}'s unit on {name} was withdrawn", name, fault=False)
            case ConfigEnded(config=config, status=status, reason=reason):
                yield Mark(at, f"{config} {status.value}: {reason}", fault=status is Status.FAILED)
            case ConfigResumed(config=config, reason=reason):
                yield Mark(at, f"{config} goes on: {reason}", fault=False)
            case LeaderChanged(leader=None):
                yield Mark(at, "nobody led the run", fault=False)
            case LeaderChanged(leader=leader) if configs:
                yield Mark(at, f"{leader} took the lead", fault=False)
            case StateRead(state=state) if index and state.plan is not None:
                yield Mark(at, "the history has a gap: the state was read afresh")
