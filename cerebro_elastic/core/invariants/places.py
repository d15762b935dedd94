"""Invariants of who works on what: exclusive access, non-preemption, fencing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cerebro_elastic.core.events import (
    ConfigEnded,
    ConfigResumed,
    Event,
    StateRead,
    UnitAssigned,
    UnitCommitted,
    UnitFailed,
    UnitWithdrawn,
)
from cerebro_elastic.core.invariants.accounts import Roll, Trace, told
from cerebro_elastic.core.values import Attempt, Status, Unit, Visit


def exclusive_access(read: StateRead, events: Trace) -> Iterator[str]:
    """A node runs at most one attempt at a time."""
    busy = {name: attempt.token for name, attempt in read.state.attempts.items()}
    for event in events:
        match event:
            case UnitAssigned(attempt=attempt):
                if attempt.node in busy:
                    yield (
                        f"node {attempt.node} got {told(attempt.unit)} at revision {event.revision} "
                        f"while attempt {busy[attempt.node]} was open on it"
                    )
                busy[attempt.node] = event.revision
            case UnitCommitted(visit=Visit(node=node, attempt=token)) | UnitWithdrawn(node=node, token=token):
                _forget(busy, node, token)
            case UnitFailed(failure=failure):
                _forget(busy, failure.node, failure.attempt)


def non_preemption(read: StateRead, events: Trace) -> Iterator[str]:
    """A started unit is not stopped for another unit's sake: an assignment is withdrawn only when its node's
    registration is gone, its config has ended, or the node was asked to leave; and only then a unit is left
    before its end."""
    open_ = {attempt.token: attempt for attempt in read.state.attempts.values()}
    ended = {name for name, config in read.state.configs.items() if config.status is not Status.LIVE}
    roll = Roll(read.state)
    for event in events:
        roll.read(event)
        match event:
            case UnitAssigned(attempt=attempt):
                open_[event.revision] = attempt
            case ConfigEnded(config=name):
                ended.add(name)
            case ConfigResumed(config=name):
                ended.discard(name)
            case UnitCommitted(visit=visit) if not visit.whole and visit.node not in roll.leaving:
                yield f"{told(visit.unit)} was left on {visit.node}, which nobody asked to leave"
            case UnitWithdrawn(token=token) if token in open_:
                attempt = open_.pop(token)
                stays = (
                    roll.since.get(attempt.node) == attempt.registration and attempt.node not in roll.leaving
                )
                if stays and attempt.unit.config not in ended:
                    yield f"{told(attempt.unit)} was taken from {attempt.node} without need, {event}"


def fencing(read: StateRead, events: Trace) -> Iterator[str]:
    """An attempt whose node lost its registration, or whose assignment was withdrawn, cannot
    commit or fail a unit."""
    open_ = {attempt.token: attempt for attempt in read.state.attempts.values()}
    roll = Roll(read.state)
    for event in events:
        roll.read(event)
        match event:
            case UnitAssigned(attempt=attempt):
                open_[event.revision] = replace(attempt, token=event.revision)
            case UnitWithdrawn(token=token):
                open_.pop(token, None)
            case UnitCommitted(visit=Visit(unit=unit, node=node, attempt=token)):
                yield from _fenced(open_.pop(token, None), roll, unit, node, event)
            case UnitFailed(failure=failure):
                failed = open_.pop(failure.attempt, None)
                yield from _fenced(failed, roll, failure.unit, failure.node, event)


def _forget(busy: dict[str, int], node: str, token: int) -> None:
    if busy.get(node) == token:
        del busy[node]


def _fenced(attempt: Attempt | None, roll: Roll, unit: Unit, node: str, event: Event) -> Iterator[str]:
    if attempt is None or (attempt.unit, attempt.node) != (unit, node):
        yield f"{told(unit)} on {node} had no open assignment at revision {event.revision}"
    elif roll.since.get(node) != attempt.registration:
        yield f"{told(unit)}: the registration of {node} was gone at revision {event.revision}"
