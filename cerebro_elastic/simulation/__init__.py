"""Runs on a virtual clock: the actions of the controller and the nodes, one event after the other.

The decisions, the policy and the search are those of live runs. Only training is replaced, by its seconds.
``simulate`` plays a run through; ``redecide`` decides a recorded run again and compares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.interfaces import Policy, Search
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.errors import ScheduleError
from cerebro_elastic.scheduling.openshop.checks import MOST_UNITS, number
from cerebro_elastic.simulation.engine import LEASE_SECONDS, Conditions, Engine
from cerebro_elastic.simulation.faults import Fault as Fault
from cerebro_elastic.simulation.faults import inject
from cerebro_elastic.simulation.metrics import MetricSource as MetricSource
from cerebro_elastic.simulation.metrics import RecordedMetrics as RecordedMetrics
from cerebro_elastic.simulation.metrics import SyntheticMetrics as SyntheticMetrics
from cerebro_elastic.simulation.redecide import Redecision as Redecision
from cerebro_elastic.simulation.redecide import redecide as redecide
from cerebro_elastic.simulation.times import Times as Times
from cerebro_elastic.simulation.times import UnitSizes as UnitSizes
from cerebro_elastic.simulation.times import measured as measured

_SIZES = UnitSizes()
WIDEST = 3.0
"""The widest spread: with it some units take a thousand times as long as others."""


@dataclass(frozen=True, slots=True)
class Simulation:
    """A simulated run."""

    events: Sequence[Event]
    state: State
    """Its last state. If ``state.outcome`` is ``None``, the run is stuck without nodes, or ``most_units``
    have begun."""
    seconds: float
    """From the start of the first visit to the end of the last one."""


def simulate(
    plan: Plan,
    nodes: Sequence[Node],
    policy: Policy,
    search: Search,
    times: Times,
    metrics: MetricSource,
    *,
    faults: Sequence[Fault] = (),
    spread: float = 0.0,
    lease: float = LEASE_SECONDS,
    start: float = 0.0,
    sizes: UnitSizes = _SIZES,
    most_units: float = math.inf,
) -> Simulation:
    """Play a run through on a virtual clock. The same arguments give the same history.

    Args:
        plan: The run's plan.
        nodes: The nodes at the start.
        policy: Chooses which idle node takes which unit.
        search: Creates configs, and decides how far each is trained.
        times: The seconds of units.
        metrics: The metrics of units.
        faults: The faults of nodes.
        spread: The standard deviation of the logarithm of the units' seconds, drawn by the plan's seed.
        lease: The seconds after which a death is noticed.
        start: The wall clocks' time at the start: seconds since the epoch.
        sizes: The sizes of checkpoints and units.
        most_units: The simulation ends once this number of units has begun.

    Raises:
        ScheduleError: The run cannot be simulated.
    """
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
    engine = Engine(plan, policy, search, Conditions(times, metrics, sizes, spread, lease, start))
    for node in nodes:
        engine.at(0.0, partial(engine.join, node))
    known = {node.name: node for node in nodes}
    for fault in faults:
        # A node that joins later is like the first one.
        inject(engine, fault, known.get(fault.node, replace(nodes[0], name=fault.node)))
    engine.run(most_units)
    begin = min((v.started for v in engine.visits), default=0.0)
    end = max((v.ended for v in engine.visits), default=0.0)
    return Simulation(engine.events, engine.state, end - begin)
