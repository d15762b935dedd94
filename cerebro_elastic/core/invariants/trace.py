"""What do all invariants need? A trace in stretches, and which nodes are present."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Stretch:
    """A state read from the store, and the events that follow it."""

    read: StateRead
    events: list[Event]

    @property
    def start(self) -> State:
        """The state that was read."""
        return self.read.state

    @property
    def whole(self) -> Trace:
        """All events to the end, from the visits that led to the state, with the reading itself
        (``afresh``)."""
        return [*(UnitCommitted(0, visit) for visit in self.read.visits), self.read, *self.events]

    @property
    def plan(self) -> Plan | None:
        """The run's plan, if the stretch has it."""
        opened = (event.plan for event in self.events if isinstance(event, RunOpened))
        return self.start.plan or next(opened, None)


def stretches(trace: Trace) -> list[Stretch]:
    """The trace, cut where the state was read afresh."""
    parts = [Stretch(StateRead(0, State()), [])]
    for event in trace:
        if isinstance(event, StateRead):
            parts.append(Stretch(event, []))
        else:
            parts[-1].events.append(event)
    return parts


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
