"""What each node did when, and what went wrong: read from the history, for people.

Visits know when they began and how long they took, by their node's clock. Other events have only their place
in the history: their time is taken to lie evenly between those of the visits before and after.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cerebro_elastic.core.events import (
    ConfigEnded,
    ConfigResumed,
    Event,
    LeaderChanged,
    NodeDraining,
    NodeJoined,
    NodeLeft,
    NodeSetAside,
    RunEnded,
    StateRead,
    TrialDone,
    UnitAssigned,
    UnitCommitted,
    UnitFailed,
    UnitTrained,
    UnitWithdrawn,
)
from cerebro_elastic.core.values import Attempt, Status, Unit, Visit


@dataclass(frozen=True, slots=True)
class Span:
    """A node in an attempt: one that became a ``visit``, a trial, or one whose work was ``lost``; ``why``
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
class Share:
    """Into what a node's seconds went while it was there: training, loading and saving states (and
    waiting for partitions: ``hopping``), trials, attempts that were lost; the rest it was idle."""

    node: str
    present: float
    training: float
    hopping: float
    trying: float
    lost: float
    visits: int

    @property
    def idle(self) -> float:
        return max(0.0, self.present - self.training - self.hopping - self.trying - self.lost)


@dataclass(frozen=True, slots=True)
class Timeline:
    """A run from its first visit's begin to its last visit's end; nothing if there was no visit yet."""

    begin: float
    end: float
    spans: Sequence[Span]
    marks: Sequence[Mark]
    shares: Sequence[Share]

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
    spans = sorted(
        [*done, *_without_visit(events, attempts, clock, done)], key=lambda span: (span.node, span.start)
    )
    present = _present(events, clock)
    by_node: dict[str, list[Span]] = {node: [] for node in present}
    for span in spans:
        by_node.setdefault(span.node, []).append(span)
    return Timeline(
        begin=clock.begin,
        end=clock.end,
        spans=spans,
        marks=list(_marks(events, clock)),
        shares=[_share(node, present.get(node, 0.0), by_node[node]) for node in sorted(by_node)],
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
        starts = [visit.started for visit in _visits(events)]
        self.begin = latest = min(starts, default=0.0)
        first = (index for index, event in enumerate(events) if isinstance(event, UnitAssigned))
        self._known = [next(first, 0)]
        self._times = [self.begin]
        for index, event in enumerate(events):
            ends: list[float] = []
            match event:
                case StateRead(visits=visits):
                    ends = [visit.ended for visit in visits]
                case UnitCommitted(visit=visit):
                    ends = [visit.ended]
            if ends:
                latest = max(latest, *ends)
                self._known.append(index)
                self._times.append(latest)
        self.end = latest

    def at(self, index: int) -> float:
        place = bisect_left(self._known, index)
        if place == 0:
            return self.begin
        if place == len(self._known):
            return self.end
        (before, after), (began, ended) = (
            self._known[place - 1 : place + 1],
            self._times[place - 1 : place + 1],
        )
        return began + (index - before) / (after - before) * (ended - began)


def _without_visit(
    events: Sequence[Event],
    attempts: Mapping[int, tuple[int, Attempt]],
    clock: _Clock,
    done: Sequence[Span],
) -> Iterator[Span]:
    """Attempts that did not commit, and trials. A node does one thing at a time, so each begins behind what
    the node has done before."""
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
            case TrialDone(trial=trial):
                told = trial.refusal or f"a unit takes {trial.seconds:.3g} s"
                token, why, lost = trial.attempt, f"{trial.choice}: {told}", False
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
            yield Span(node, min(start, until), until, attempt.unit, why=why, lost=lost)


def _present(events: Sequence[Event], clock: _Clock) -> dict[str, float]:
    """For how many seconds of the run each node was there."""
    since: dict[str, float] = {}
    seconds: dict[str, float] = {}

    def left(node: str, at: float) -> None:
        seconds[node] = seconds.get(node, 0.0) + at - since.pop(node, at)

    for index, event in enumerate(events):
        at = clock.at(index)
        match event:
            case NodeJoined(node=node):
                since[node.name] = at
            case NodeLeft(node=name):
                left(name, at)
            case StateRead(state=state):
                for name in since.keys() - state.nodes.keys():
                    left(name, at)
                for name in state.nodes.keys() - since.keys():
                    since[name] = at
    for name in list(since):
        left(name, clock.end)
    return seconds


def _share(node: str, present: float, spans: Sequence[Span]) -> Share:
    visits = [span.visit for span in spans if span.visit is not None]
    training = sum(v.seconds for v in visits)
    hopping = sum(v.hop_seconds + v.fetch_seconds for v in visits)
    lost = sum(span.seconds for span in spans if span.lost)
    trying = sum(span.seconds for span in spans if span.visit is None and not span.lost)
    # A node that joined before others knew of it, or whose clock differs, was there at least as long as this.
    return Share(
        node, max(present, training + hopping + trying + lost), training, hopping, trying, lost, len(visits)
    )


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
            case NodeSetAside(node=name, why=why, seconds=seconds):
                yield Mark(at, f"{name} got no units for {seconds:g} s: {why}", name)
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
