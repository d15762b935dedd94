"""Faults, while a simulated run is under way."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

from cerebro_elastic.core.history.estimates import fits
from cerebro_elastic.core.model.attempts import Attempt, Failure, FailureKind
from cerebro_elastic.core.model.events import LeaderChanged, NodeDraining, UnitFailed, UnitWithdrawn
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.units import Phase
from cerebro_elastic.simulation.engine import Course
from cerebro_elastic.simulation.faults import LEADER, Fault

_A_DAY = 86400.0


def arrange(course: Course, fault: Fault, node: Node) -> None:
    """Let the fault happen to the node when it is due, and be over when it is."""
    name = fault.node
    if name == LEADER:
        course.at(fault.at, partial(_depose, course, fault.seconds or 0.0))
        return
    begins = {
        "kill": partial(_outage, course, node, fault.seconds),
        "crash": partial(_crash, course, name),
        "drain": partial(_drain, course, node, fault.grace, fault.seconds),
        "slow": partial(_slow, course, name, fault.factor, fault.seconds),
        "join": partial(_join, course, node),
    }[fault.what]
    course.at(fault.at, begins)


def _depose(course: Course, absence: float) -> None:
    """Who leads dies. When its lease has ended the next candidate leads, if there is one by then."""
    if not course.led:
        return
    course.led = False
    ended = course.now + course.lease
    course.at(ended, lambda: course.tell(LeaderChanged(course.revision, None)))
    course.at(max(ended, course.now + absence), partial(_lead, course))


def _lead(course: Course) -> None:
    course.tell(LeaderChanged(course.revision, f"simulated after {course.now:g} s"))
    course.led = True


def _outage(course: Course, node: Node, seconds: float | None) -> None:
    """It dies, and is back when this outage of its and all others are over."""
    _kill(course, node.name)
    _stay_away(course, node, seconds)


def _stay_away(course: Course, node: Node, seconds: float | None) -> None:
    until = math.inf if seconds is None else course.now + seconds
    course.away[node.name] = max(until, course.away.get(node.name, 0.0))
    if seconds is not None:
        course.at(until, partial(_return, course, node))


def _return(course: Course, node: Node) -> None:
    """It joins, if nothing else keeps it away and it is not there already."""
    if course.away.get(node.name, math.inf) <= course.now:
        _join(course, node)


def _join(course: Course, node: Node) -> None:
    course.away.pop(node.name, None)
    course.join(node)


def _slow(course: Course, name: str, factor: float, seconds: float | None) -> None:
    """Of several factors at a time the last one holds."""
    factors = course.slow.setdefault(name, [1.0])
    factors.append(factor)
    if seconds is not None:
        course.at(course.now + seconds, partial(factors.remove, factor))


def _kill(course: Course, name: str, registration: int | None = None) -> None:
    """The node of this name dies, if it is the one of this registration."""
    node = course.state.nodes.get(name)
    if node is not None and registration in (None, node.registration):
        course.dead.add(node.registration)
        course.at(course.now + course.lease, partial(course.leave, name, node.registration))


def _crash(course: Course, name: str) -> None:
    """Its rank dies, is started anew, and registers anew; the unit in training is to blame, or the one that
    is being saved."""
    attempt = course.state.attempts.get(name) or course.state.saving.get(name)
    if attempt is None or not course.reports(attempt):
        return
    failure = Failure(
        attempt.unit,
        name,
        attempt.token,
        FailureKind.CRASH,
        "simulated",
        strategy=attempt.strategy,
        hardware=attempt.hardware,
    )
    course.tell(UnitFailed(course.revision, failure))
    course.join(course.state.nodes[name])
    course.done(attempt)


def _drain(course: Course, node: Node, grace: float | None, absence: float | None) -> None:
    """It is asked to leave within its grace, and is back after its absence, if that has an end."""
    name, there = node.name, course.state.nodes.get(node.name)
    if there is None or there.drain is not None:
        return
    course.tell(NodeDraining(course.revision, name, _A_DAY if grace is None else grace))
    course.when_idle[name] = partial(_leave, course, node, absence)
    attempt = course.state.attempts.get(name)
    if attempt is not None and grace is not None:
        _hand_on(course, attempt, grace)
    if grace is not None:
        course.at(course.now + grace, partial(_kill, course, name, there.registration))
    course.rest(name)


def _leave(course: Course, node: Node, absence: float | None) -> None:
    course.leave(node.name)
    _stay_away(course, node, absence)


def _hand_on(course: Course, attempt: Attempt, grace: float) -> None:
    """What does not fit into the grace is left at the next batch, for others to go on with; an evaluation is
    given up, and a trial is short enough."""
    work, phase = course.works[attempt.token], attempt.unit.phase
    if (
        not course.reports(attempt)
        or phase is Phase.PROFILE
        or fits(work.ends - course.now, work.saving, grace)
    ):
        return
    if phase is Phase.EVALUATE:
        course.tell(UnitWithdrawn(course.revision, attempt.node, attempt.token))
        course.done(attempt)
        return
    batch = work.seconds / work.batches
    trained = max(1, math.ceil((course.now - work.trains) / batch - 1e-9)) if batch else work.batches
    if trained < work.batches:
        course.go_on(replace(work, seconds=trained * batch, batches=trained, whole=False))
