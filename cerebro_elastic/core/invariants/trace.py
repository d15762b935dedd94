"""What do all invariants need? A trace in stretches, and which nodes are present."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from cerebro_elastic.core.model.attempts import Attempt, Visit
from cerebro_elastic.core.model.events import (
    Event,
    NodeDraining,
    NodeJoined,
    NodeLeft,
    NodeQuarantined,
    NodeRecovered,
    NodeReleased,
    NodeStalled,
    ProfileDone,
    RecordMended,
    RunExtended,
    RunOpened,
    StateRead,
    UnitCommitted,
    UnitFailed,
    UnitsReused,
    UnitWithdrawn,
)
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Phase, Unit

Trace: TypeAlias = Sequence[Event]
Stretch: TypeAlias = tuple[StateRead, Trace]
"""A state that was read, and the events that follow it."""


def stretches(trace: Trace) -> list[Stretch]:
    """The trace, cut where the state was read afresh."""
    cuts = [place for place, event in enumerate(trace) if isinstance(event, StateRead)]
    ends = [*cuts, len(trace)]
    parts: list[Stretch] = [(StateRead(0, State()), trace[: ends[0]])]
    for cut, end in zip(cuts, ends[1:], strict=True):
        read = trace[cut]
        assert isinstance(read, StateRead)
        parts.append((read, trace[cut + 1 : end]))
    return parts


def plan_of(start: State, events: Trace) -> Plan | None:
    """The run's plan, if the stretch has it."""
    return start.plan or next((event.plan for event in events if isinstance(event, RunOpened)), None)


class NodeRoster:
    """The nodes as the events report them: registrations, kinds, departures, quarantines."""

    def __init__(self, start: State) -> None:
        self.kinds = {name: (node.hardware, node.ranks) for name, node in start.nodes.items()}
        self.registrations = {name: node.registration for name, node in start.nodes.items()}
        self.leaving = {name for name, node in start.nodes.items() if node.drain is not None}
        self.stalled = {name for name, node in start.nodes.items() if node.stalled is not None}
        self.quarantined = set(start.quarantined)
        self.extended = start.extended

    def read(self, event: Event) -> None:
        """Take in the next event."""
        match event:
            case NodeJoined(node=node):
                self.registrations[node.name] = node.registration
                self.kinds[node.name] = node.hardware, node.ranks
            case NodeLeft(node=name):
                self._left(name)
            case NodeStalled(node=name):
                self.stalled.add(name)
            case NodeRecovered(node=name):
                self.stalled.discard(name)
            case RecordMended():
                for name in event.names("nodes"):
                    self._left(name)
                self.quarantined -= event.names("quarantined")
            case NodeDraining(node=name):
                self.leaving.add(name)
            case NodeQuarantined(node=name):
                self.quarantined.add(name)
            case NodeReleased(node=name):
                self.quarantined.discard(name)
            case RunExtended(revision=revision):
                self.extended = revision

    def _left(self, name: str) -> None:
        self.registrations.pop(name, None)
        self.leaving.discard(name)
        self.stalled.discard(name)

    def may_report(self, attempt: Attempt) -> bool:
        """Whether the registrations of all nodes of the attempt exist."""
        return all(self.registrations.get(member.node) == member.registration for member in attempt.members)

    def used(self, most: int) -> set[tuple[str, int]]:
        """Names and registrations of the nodes that get units: at most ``most``, those longest registered."""
        out = self.leaving | self.quarantined | self.stalled
        nodes = self.registrations.items()
        free = [(name, at) for name, at in nodes if name not in out and at >= self.extended]
        return set(sorted(free, key=lambda item: item[1])[:most])


def ended_tokens(event: Event) -> tuple[int, ...]:
    """The tokens of the attempts that end with this event."""
    match event:
        case UnitCommitted(visit=Visit(attempt=token)) | UnitWithdrawn(token=token):
            return (token,)
        case UnitFailed(failure=failure):
            return (failure.attempt,)
        case ProfileDone(profile=profile):
            return (profile.attempt,)
        case RecordMended(withdrawn=tokens):
            return tokens
    return ()


def visits_in(event: Event) -> tuple[Visit, ...]:
    """The visits that the event adds: one that was trained, or those of an earlier run. (``history/keys.py``
    has the machine's own; the invariants share no code with it.)"""
    match event:
        case UnitCommitted(visit=visit):
            return (visit,)
        case UnitsReused(visits=visits):
            return visits
    return ()


def in_words(unit: Unit) -> str:
    """The unit, for a message."""
    target = {Phase.TRAIN: "partition", Phase.EVALUATE: "evaluation", Phase.PROFILE: "profile on partition"}
    return f"{unit.config} epoch {unit.epoch} {target[unit.phase]} {unit.partition}"
