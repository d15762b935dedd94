"""A run on a virtual clock: what the controller would do, and what nodes would, one event after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from cerebro_elastic.core.model.events import Event, UnitCommitted
from cerebro_elastic.core.model.interfaces import Policy, Search
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.errors import ScheduleError
from cerebro_elastic.openshop.checks import MOST_UNITS, number
from cerebro_elastic.simulation.engine import LEASE, Course
from cerebro_elastic.simulation.fault_injection import arrange
from cerebro_elastic.simulation.faults import Fault
from cerebro_elastic.simulation.learning import Learning
from cerebro_elastic.simulation.times import Sizes, Times

_SIZES = Sizes()
WIDEST = 3.0
"""The widest spread: some units then take a thousand times as long as others."""


@dataclass(frozen=True, slots=True)
class Simulation:
    """What came of it: the history, the last ``state``, and the ``seconds`` from the first visit's begin to
    the last one's end. If ``state.outcome`` is ``None`` the run stood still: no node was there, nor came."""

    events: Sequence[Event]
    state: State
    seconds: float


def simulate(
    plan: Plan,
    nodes: Sequence[Node],
    policy: Policy,
    search: Search,
    times: Times,
    learning: Learning,
    *,
    faults: Sequence[Fault] = (),
    spread: float = 0.0,
    lease: float = LEASE,
    start: float = 0.0,
    sizes: Sizes = _SIZES,
) -> Simulation:
    """The run of ``plan`` on ``nodes``, which are there from the beginning. Units take what ``times`` says,
    with noise of ``spread`` by the plan's seed. ``start`` is what the wall clocks show at the beginning,
    ``sizes`` what the record tells besides. Raises ``ScheduleError`` for what cannot be simulated."""
    number(spread, "spread", WIDEST)
    number(lease, "lease")
    number(start, "start")
    names = [node.name for node in nodes]
    if not names or len(set(names)) < len(names):
        raise ScheduleError(f"nodes are {names}; there must be one at least, and no name twice")
    if plan.epochs * plan.partitions > MOST_UNITS:
        raise ScheduleError(
            f"{plan.epochs} epochs over {plan.partitions} partitions are more than {MOST_UNITS} units of a "
            "config; give fewer"
        )
    course = Course(plan, policy, search, times, learning, spread, lease, start, sizes)
    for node in nodes:
        course.at(0.0, partial(course.join, node))
    known = {node.name: node for node in nodes}
    for fault in faults:
        # Who joins later is like the first.
        arrange(course, fault, known.get(fault.node, replace(nodes[0], name=fault.node)))
    course.run()
    visits = [event.visit for event in course.events if isinstance(event, UnitCommitted)]
    begin = min((v.started for v in visits), default=0.0)
    end = max((v.ended for v in visits), default=0.0)
    return Simulation(course.events, course.state, end - begin)
