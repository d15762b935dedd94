"""The faults of a simulation, injected into a run.

=========  ====================================================================================
``kill``   the node is gone at once, which is noticed when its lease ends. Of ``LEADER``: no
           controller decides until the leader's lease has ended, and the fault is over
``crash``  its rank dies and restarts; its unit fails
``drain``  it finishes its unit and leaves; if that takes longer than ``grace``, it leaves at the
           next batch, and other nodes continue from there; when that is over it is killed
``slow``   units that it begins take ``factor`` times as long
``join``   a node of this name joins
=========  ====================================================================================
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

from cerebro_elastic.core.history.estimates import fits
from cerebro_elastic.core.model.attempts import Attempt, Failure, FailureKind
from cerebro_elastic.core.model.events import LeaderChanged, NodeDraining, UnitFailed, UnitWithdrawn
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.units import Phase
from cerebro_elastic.errors import ScheduleError
from cerebro_elastic.scheduling.openshop.checks import number, one_of
from cerebro_elastic.simulation.engine import Engine

LEADER = "leader"
"""Stands for the controller that leads the run."""
_A_DAY = 86400.0
WHAT = ("crash", "drain", "join", "kill", "slow")
"""The kinds of faults."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a node, and its time. Raises ``ScheduleError`` for impossible values."""

    what: str
    """One of ``WHAT``."""
    node: str
    """The node's name, or ``LEADER``."""
    at: float
    """When it happens: seconds after the run's start."""
    seconds: float | None = None
    """How long it lasts (``kill``, ``drain``, ``slow``); ``None``: to the run's end."""
    factor: float = 1.0
    """``slow``: the factor on the seconds of the node's units."""
    grace: float | None = None
    """``drain``: the seconds in which the node must leave; ``None``: as many as its unit takes."""

    def __post_init__(self) -> None:
        one_of(self.what, WHAT, "fault")
        number(self.at, "at")
        if number(self.factor, "factor") == 0:
            raise ScheduleError("factor is 0; it must be above 0")
        for name in ("seconds", "grace"):
            if (value := getattr(self, name)) is not None:
                number(value, name)


def inject(engine: Engine, fault: Fault, node: Node) -> None:
    """Schedule the node's fault, and its end."""
    name = fault.node
    if name == LEADER:
        engine.at(fault.at, partial(_depose, engine, fault.seconds or 0.0))
        return
    begins = {
        "kill": partial(_outage, engine, node, fault.seconds),
        "crash": partial(_crash, engine, name),
        "drain": partial(_drain, engine, node, fault.grace, fault.seconds),
        "slow": partial(_slow, engine, name, fault.factor, fault.seconds),
        "join": partial(_join, engine, node),
    }[fault.what]
    engine.at(fault.at, begins)


def _depose(engine: Engine, absence: float) -> None:
    """The leader dies. When its lease has ended the next candidate leads, if one exists by then."""
    if not engine.led:
        return
    engine.led = False
    ended = engine.now + engine.conditions.lease
    engine.at(ended, lambda: engine.record(LeaderChanged(engine.revision, None)))
    engine.at(max(ended, engine.now + absence), partial(_lead, engine))


def _lead(engine: Engine) -> None:
    engine.record(LeaderChanged(engine.revision, f"simulated after {engine.now:g} s"))
    engine.led = True


def _outage(engine: Engine, node: Node, seconds: float | None) -> None:
    """The node dies, and returns when this and all its other outages are over."""
    _kill(engine, node.name)
    _stay_away(engine, node, seconds)


def _stay_away(engine: Engine, node: Node, seconds: float | None) -> None:
    until = math.inf if seconds is None else engine.now + seconds
    engine.away[node.name] = max(until, engine.away.get(node.name, 0.0))
    if seconds is not None:
        engine.at(until, partial(_return, engine, node))


def _return(engine: Engine, node: Node) -> None:
    """The node joins, unless another fault keeps it away or it has joined already."""
    if engine.away.get(node.name, math.inf) <= engine.now:
        _join(engine, node)


def _join(engine: Engine, node: Node) -> None:
    engine.away.pop(node.name, None)
    engine.join(node)


def _slow(engine: Engine, name: str, factor: float, seconds: float | None) -> None:
    """The node is slow for a while; of several simultaneous factors the last one counts."""
    factors = engine.slow.setdefault(name, [1.0])
    factors.append(factor)
    if seconds is not None:
        engine.at(engine.now + seconds, partial(factors.remove, factor))


def _kill(engine: Engine, name: str, registration: int | None = None) -> None:
    """The node dies, if this is its registration."""
    node = engine.state.nodes.get(name)
    if node is not None and registration in (None, node.registration):
        engine.dead.add(node.registration)
        engine.at(engine.now + engine.conditions.lease, partial(engine.leave, name, node.registration))


def _crash(engine: Engine, name: str) -> None:
    """The node's rank dies, and registers again. The unit in training fails, or else the one being saved."""
    attempt = engine.state.attempts.get(name) or engine.state.saving.get(name)
    if attempt is None or not engine.reports(attempt):
        return
    failure = Failure.of(attempt, name, FailureKind.CRASH, "simulated")
    engine.record(UnitFailed(engine.revision, failure))
    engine.join(engine.state.nodes[name])
    engine.over(attempt)


def _drain(engine: Engine, node: Node, grace: float | None, absence: float | None) -> None:
    """The node is asked to leave within ``grace`` seconds, and returns after its absence, if that ends."""
    name, present = node.name, engine.state.nodes.get(node.name)
    if present is None or present.drain is not None:
        return
    engine.record(NodeDraining(engine.revision, name, _A_DAY if grace is None else grace))
    engine.when_idle[name] = partial(_leave, engine, node, absence)
    attempt = engine.state.attempts.get(name)
    if attempt is not None and grace is not None:
        _leave_at_next_batch(engine, attempt, grace)
    if grace is not None:
        engine.at(engine.now + grace, partial(_kill, engine, name, present.registration))
    engine.leave_if_idle(name)


def _leave(engine: Engine, node: Node, absence: float | None) -> None:
    engine.leave(node.name)
    _stay_away(engine, node, absence)


def _leave_at_next_batch(engine: Engine, attempt: Attempt, grace: float) -> None:
    """A unit longer than the grace is left at the next batch, and other nodes continue from there. An
    evaluation is given up; a profile is short enough."""
    unit, phase = engine.units[attempt.token], attempt.unit.phase
    if (
        not engine.reports(attempt)
        or phase is Phase.PROFILE
        or fits(unit.training_ends - engine.now, unit.saving, grace)
    ):
        return
    if phase is Phase.EVALUATE:
        engine.record(UnitWithdrawn(engine.revision, attempt.node, attempt.token))
        engine.over(attempt)
        return
    batch = unit.seconds / unit.batches
    trained = max(1, math.ceil((engine.now - unit.training_starts) / batch - 1e-9)) if batch else unit.batches
    if trained < unit.batches:
        engine.go_on(replace(unit, seconds=trained * batch, batches=trained, whole=False))
