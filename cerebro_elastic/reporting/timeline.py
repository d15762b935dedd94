"""What each node did when, and what went wrong: read from the history, for people.

Visits know when they began and how long they took, by their node's clock. Other events have only their place
in the history: their time lies evenly between those of the visits before and after, as far as that agrees
with what else is known: what came before an assignment came before its visit began, and a quarantine lasted
as long as it was to.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
    StateRead,
    UnitAssigned,
    UnitCommitted,
    UnitFailed,
    UnitTrained,
    UnitWithdrawn,
)
from cerebro_elastic.core.model.units import Unit

Interval: TypeAlias = tuple[float, float]
"""Two moments of wall-clock time."""


@dataclass(frozen=True, slots=True)
class Span:
    """A node in an attempt: one that became a ``visit``, a profile, or one whose work was ``lost``; ``why``
    tells what came of the latter two. Seconds of wall-clock time."""

    node: str
    start: float
    end: float
    unit: Unit
    visit: Visit | None = None
    why: str = ""
    lost: bool = False

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Mark:
    """Something out of the ordinary, about when it was, and on which node, if it was on one."""

    at: float
    text: str
    node: str | None = None
    fault: bool = True


@dataclass(frozen=True, slots=True)
class QuarantineSpan:
    """A time in which a node got no units, after failures on it. Seconds of wall-clock time."""

    node: str
    start: float
    end: float
    why: str

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Share:
    """Into what a node's seconds went while it was there: training, loading and saving states (and
    waiting for partitions: ``hopping``), profiles, attempts that were lost, quarantine; the rest it was
    idle."""

    node: str
    present: float
    training: float
    hopping: float
    profiling: float
    lost: float
    quarantined: float
    visits: int

    @property
    def idle(self) -> float:
        busy = self.training + self.hopping + self.profiling + self.lost
        return max(0.0, self.present - busy - self.quarantined)


@dataclass(frozen=True, slots=True)
class Timeline:
    """A run from its first visit's begin to its last visit's end; nothing if there was no visit yet."""

    begin: float
    end: float
    spans: Sequence[Span]
    marks: Sequence[Mark]
    shares: Sequence[Share]
    quarantines: Sequence[QuarantineSpan] = field(default=())

    @property
    def seconds(self) -> float:
        return self.end - self.begin


def timeline(events: Sequence[Event]) -> Timeline:
    """What the history of a run says about its nodes' time."""
    visits = _visits(events)
    clock = _Clock(events)
    attempts = {
        event.revision: (index, event.attempt)
        for index, event in enumerate(events)
        if isinstance(event, UnitAssigned)
    }
    done = [
        Span(node, visit.started, visit.freed, visit.unit, visit) for visit in visits for node in visit.nodes
    ]
    there = _present(events, clock)
    spans = sorted(
        [*done, *_without_visit(events, attempts, clock, done, there)],
        key=lambda span: (span.node, span.start),
    )
    by_node: dict[str, list[Span]] = {node: [] for node in there}
    for span in spans:
        by_node.setdefault(span.node, []).append(span)
    quarantines = list(_quarantines(events, clock, there))
    return Timeline(
        begin=clock.begin,
        end=clock.end,
        spans=spans,
        marks=list(_marks(events, clock)),
        shares=[
            _share(node, there.get(node, []), by_node[node], [q for q in quarantines if q.node == node])
            for node in sorted(by_node)
        ],
        quarantines=quarantines,
    )


def _visits(events: Sequence[Event]) -> list[Visit]:
    """Those that count: what a restored snapshot does not know was undone."""
    visits: list[Visit] = []
    for event in events:
        match event:
            case StateRead(visits=known):
                visits = list(known)
            case UnitCommitted(visit=visit):
                visits.append(visit)
    return visits


class _Clock:
    """About when the event with an index was."""

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
        """By its place between those whose time is known."""
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
    """Events of which the time is known: the first assignment, and commits, by the latest end so far."""
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
    """When each event was at the latest. ``started`` are the begins of visits, by their attempts' tokens."""
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
    done: Sequence[Span],
    there: Mapping[str, Sequence[Interval]],
) -> Iterator[Span]:
    """Attempts that did not commit, and profiles. A node does one thing at a time, so each begins behind what
    the node has done before; and it ends with the node, if that left."""
    trained = {event.token: index for index, event in enumerate(events) if isinstance(event, UnitTrained)}
    ends: dict[str, list[float]] = {}
    for span in sorted(done, key=lambda span: span.end):
        ends.setdefault(span.node, []).append(span.end)
    for index, event in enumerate(events):
        match event:
            case UnitFailed(failure=failure):
                token, why, lost = failure.attempt, f"failed, {failure.kind.value}: {failure.story}", True
            case UnitWithdrawn(token=token):
                why, lost = "withdrawn: what it did was lost", True
            case ProfileDone(profile=profile):
                told = profile.refusal or f"a unit takes {profile.seconds:.3g} s"
                token, why, lost = profile.attempt, f"{profile.strategy}: {told}", False
            case _:
                continue
        if token not in attempts:
            continue
        began, attempt = attempts[token]
        until = clock.at(trained.get(token, index))  # its node was free from then on
        for node in attempt.nodes:
            known = ends.get(node, [])
            before = known[bisect_left(known, until) - 1] if known and known[0] < until else clock.begin
            start = max(clock.at(began), before)
            left = next((end for _, end in there.get(node, ()) if end > start), until)
            end = min(until, left)
            yield Span(node, min(start, end), end, attempt.unit, why=why, lost=lost)


def _present(events: Sequence[Event], clock: _Clock) -> dict[str, list[Interval]]:
    """When each node was there."""
    since: dict[str, float] = {}
    there: dict[str, list[Interval]] = {}

    def left(node: str, at: float) -> None:
        there.setdefault(node, []).append((since.pop(node, at), at))

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
    return there


def _quarantines(
    events: Sequence[Event], clock: _Clock, there: Mapping[str, Sequence[Interval]]
) -> Iterator[QuarantineSpan]:
    """The quarantines of nodes, while they were there."""
    since: dict[str, tuple[float, str]] = {}

    def over(node: str, at: float) -> Iterator[QuarantineSpan]:
        begin, why = since.pop(node, (at, ""))
        for joined, left in there.get(node, ()):
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
    node: str, there: Sequence[Interval], spans: Sequence[Span], quarantines: Sequence[QuarantineSpan]
) -> Share:
    visits = [span.visit for span in spans if span.visit is not None]
    present = sum(left - joined for joined, left in there)
    training = sum(v.seconds for v in visits)
    hopping = sum(v.hop_seconds + v.fetch_seconds for v in visits)
    lost = sum(span.seconds for span in spans if span.lost)
    profiling = sum(span.seconds for span in spans if span.visit is None and not span.lost)
    quarantined = sum(each.seconds for each in quarantines)
    # A node that joined before others knew of it, or whose clock differs, was there at least as long as this.
    present = max(present, training + hopping + profiling + lost + quarantined)
    return Share(node, present, training, hopping, profiling, lost, quarantined, len(visits))


def _marks(events: Sequence[Event], clock: _Clock) -> Iterator[Mark]:
    """What is worth a mark from the first assignment to the run's end: before and after, nodes just come and
    go."""
    leaving: set[str] = set()
    configs: dict[int, str] = {}
    for index, event in enumerate(events):
        at = clock.at(index)
        match event:
            case UnitAssigned(revision=token, attempt=attempt):
                configs[token] = attempt.unit.config
            case RunEnded():
                return
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
                what = configs.get(token, "a config")
                yield Mark(at, f"{what}'s unit on {name} was withdrawn", name, fault=False)
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
