"""Simulated runs in which nodes fetch on demand, against the same ones in which they do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cerebro_elastic.core.invariants import check
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.events import UnitCommitted
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.scheduling.look_ahead import Auto
from cerebro_elastic.simulation import (
    Simulation,
    SyntheticMetrics,
    Times,
    read_faults,
    redecide,
    simulate,
)
from support.world import FixedSearch

PLAN = Plan("r", partitions=4, epochs=2, min_nodes=4, max_nodes=4)
NAMES = [f"n{k}" for k in range(4)]
SEARCH = FixedSearch([{"x": i} for i in range(6)])
SLOW = Times(usual=10.0, nodes={"n0": 2.0}, fetch=4.0)
"""``n0`` takes twice as long as the others: too little for partitions to move away from it."""


def run(plan: Plan, times: Times = SLOW, faults: str = "", hosts: Sequence[str] = NAMES) -> Simulation:
    """It keeps all invariants, every unit is done once, and all decisions are found again."""
    nodes = [Node(name, host) for name, host in zip(NAMES, hosts, strict=True)]
    toy, outages = SyntheticMetrics({}, plan.epochs * plan.partitions), read_faults(faults, NAMES)
    done = simulate(plan, nodes, Auto(), SEARCH, times, toy, faults=outages, lease=0.5)
    assert check(done.events) == []
    assert done.state.outcome == "finished"
    assert len(visits(done)) == 6 * plan.epochs * plan.partitions
    assert redecide(done.events, Auto(), SEARCH).explanation is None
    return done


def visits(done: Simulation) -> list[Visit]:
    return [event.visit for event in done.events if isinstance(event, UnitCommitted)]


def read(done: Simulation) -> list[tuple[str, int]]:
    """What was fetched, by host."""
    hosts = {name: node.host for name, node in done.state.nodes.items()}
    return [(hosts[v.node], v.unit.partition) for v in visits(done) if v.fetch_seconds]


def test_slow_nodes_are_relieved() -> None:
    home, on_demand = run(PLAN), run(replace(PLAN, on_demand=True))
    assert on_demand.seconds < 0.9 * home.seconds
    assert len(read(on_demand)) > len(read(home))
    assert len(set(read(on_demand))) == len(read(on_demand)), "a host reads each partition once"


def test_a_fetch_that_costs_more_than_waiting_is_left() -> None:
    dear = replace(SLOW, fetch=1000.0)
    home, on_demand = run(PLAN, dear), run(replace(PLAN, on_demand=True), dear)
    assert on_demand.seconds <= home.seconds
    assert read(on_demand) == read(home)


def test_nodes_of_one_host_share_what_one_of_them_fetched() -> None:
    done = run(replace(PLAN, on_demand=True), hosts=["one"] * 4)
    assert sorted(read(done)) == [("one", j) for j in range(4)]
