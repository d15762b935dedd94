"""Invariants of who works on what: exclusive access, non-preemption, fencing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cerebro_elastic.core.invariants.trace import Roll, Trace, told
from cerebro_elastic.core.model.attempts import Attempt, Visit
from cerebro_elastic.core.model.events import (
    ConfigEnded,
    Event,
    ProfileDone,
    RecordMended,
    StateRead,
    UnitAssigned,
    UnitCommitted,
    UnitFailed,
    UnitTrained,
    UnitWithdrawn,
)
from cerebro_elastic.core.model.units import Unit


def exclusive_access(read: StateRead, events: Trace) -> Iterator[str]:
    """A node runs at most one attempt at a time, and besides saves at most one that it has trained; a gang
    has as many nodes as its choice asks for, and all of them run its attempt alone."""
    busy = {name: attempt.token for name, attempt in read.state.attempts.items()}
    saving = {name: attempt.token for name, attempt in read.state.saving.items()}
    for event in events:
        match event:
            case UnitAssigned(attempt=attempt):
                for name in sorted({*attempt.nodes} & {*busy}):
                    yield (
                        f"node {name} got {told(attempt.unit)} at revision {event.revision} "
                        f"while attempt {busy[name]} was open on it"
                    )
                if len({*attempt.nodes}) != attempt.strategy.nodes:
                    yield f"{told(attempt.unit)} by {attempt.strategy} was given to {attempt.nodes}"
                busy |= dict.fromkeys(attempt.nodes, event.revision)
            case UnitTrained(node=name, token=trained):
                if busy.get(name) != trained or list(busy.values()).count(trained) > 1:
                    yield f"node {name} told of attempt {trained}, but {busy} are open"
                if name in saving:
                    yield f"node {name} saves attempt {trained} while it saves attempt {saving[name]}"
                busy.pop(name, None)
                saving[name] = trained
            case _ if over := _over(event):
                busy = {name: token for name, token in busy.items() if token not in over}
                saving = {name: token for name, token in saving.items() if token not in over}


def non_preemption(read: StateRead, events: Trace) -> Iterator[str]:
    """A started unit is not stopped for another unit's sake: an assignment is withdrawn only when a node's
    registration is gone, its config has ended since it began or had to be put back, or a node was asked to
    leave; and only then a unit is left before its end."""
    open_ = {attempt.token: attempt for attempt in read.state.underway()}
    doomed = {token for token, attempt in open_.items() if not read.state.stands(attempt)}
    roll = Roll(read.state)
    for event in events:
        roll.read(event)
        match event:
            case UnitAssigned(attempt=attempt):
                open_[event.revision] = attempt
            case ConfigEnded(config=name):
                doomed |= {token for token, attempt in open_.items() if attempt.unit.config == name}
            case RecordMended():
                configs = event.names("configs")
                doomed |= {token for token, attempt in open_.items() if attempt.unit.config in configs}
            case UnitCommitted(visit=visit) if not visit.whole and not roll.leaving & {*visit.nodes}:
                yield f"{told(visit.unit)} was left on {visit.node}, which nobody asked to leave"
            case UnitWithdrawn(token=token) if token in open_:
                attempt = open_.pop(token)
                stays = roll.stands(attempt) and not roll.leaving & {*attempt.nodes}
                if stays and token not in doomed:
                    yield f"{told(attempt.unit)} was taken from {attempt.node} without need, {event}"


def fencing(read: StateRead, events: Trace) -> Iterator[str]:
    """An attempt of which a node lost its registration, or whose assignment was withdrawn, cannot
    commit or fail a unit, nor tell of a trial, nor that it is trained."""
    open_ = {attempt.token: attempt for attempt in read.state.underway()}
    roll = Roll(read.state)
    for event in events:
        roll.read(event)
        ended = [open_.pop(token, None) for token in _over(event)]
        attempt = ended[0] if len(ended) == 1 else None
        match event:
            case UnitAssigned(attempt=assigned):
                open_[event.revision] = assigned
            case UnitTrained(node=name, token=token):
                trained = open_.get(token)
                if trained is None or not roll.stands(trained):
                    yield f"attempt {token} on {name} was trained, but is not open at {event.revision}"
            case UnitCommitted(visit=visit):
                yield from _fenced(attempt, roll, visit.unit, visit.nodes, event)
            case UnitFailed(failure=failure):
                yield from _fenced(attempt, roll, failure.unit, [failure.node], event)
            case ProfileDone(profile=profile):
                yield from _fenced(attempt, roll, profile.unit, [profile.node], event)


def _over(event: Event) -> tuple[int, ...]:
    """The tokens of the attempts that are over by this event."""
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


def _fenced(
    attempt: Attempt | None, roll: Roll, unit: Unit, nodes: Sequence[str], event: Event
) -> Iterator[str]:
    if attempt is None or attempt.unit != unit or not {*nodes} <= {*attempt.nodes}:
        yield f"{told(unit)} on {', '.join(nodes)} had no open assignment at revision {event.revision}"
    elif not roll.stands(attempt):
        gone = [m.node for m in attempt.members if roll.since.get(m.node) != m.registration]
        yield f"{told(unit)}: the registration of {', '.join(gone)} was gone at revision {event.revision}"
