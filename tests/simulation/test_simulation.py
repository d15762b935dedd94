"""Runs on a virtual clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from cerebro_elastic.core.invariants import check
from cerebro_elastic.core.model import events as ev
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.interfaces import Search
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.errors import ScheduleError
from cerebro_elastic.scheduling.longest_remaining import LongestRemaining
from cerebro_elastic.simulation import (
    Fault,
    Simulation,
    SyntheticMetrics,
    Times,
    measured,
    redecide,
    simulate,
)
from support.fault_sentences import read_faults
from support.world import FixedSearch

PLAN = Plan("simulated", partitions=4, epochs=2, max_nodes=4, min_nodes=4, seed=3)
NODES = [Node(f"node-{i}", "host") for i in range(4)]
SIX = FixedSearch([{"lr": 0.1 * i} for i in range(6)])
UNEVEN = Times(configs={f"c{i:04d}": 5.0 + i for i in range(6)}, nodes={"node-2": 1.5}, hop=0.5, dispatch=0.1)


def run(
    plan: Plan = PLAN,
    search: Search = SIX,
    times: Times = Times(usual=10.0),  # noqa: B008
    faults: str = "",
    spread: float = 0.0,
    nodes: Sequence[Node] = NODES,
) -> Simulation:
    """A simulation that keeps all invariants, and in which all decisions are found again."""
    toy = SyntheticMetrics({"val_loss": "min"}, plan.epochs * plan.partitions)
    disturbances = read_faults(faults)
    done = simulate(plan, nodes, LongestRemaining(), search, times, toy, faults=disturbances, spread=spread)
    assert check(done.events) == []
    assert redecide(done.events, LongestRemaining(), search).explanation is None
    return done


def visits(done: Simulation) -> list[Visit]:
    return [event.visit for event in done.events if isinstance(event, ev.UnitCommitted)]


def test_equal_units_fill_the_nodes() -> None:
    """Six configs of eight units of 10 s on four nodes: an open shop whose bound is 120 s."""
    done = run()
    assert (done.seconds, done.state.outcome, len(visits(done))) == (120.0, "finished", 48)


def test_costs_besides_training() -> None:
    """A unit waits 1 s, hops in 2 and trains in 10; a partition is fetched in 5, an epoch validated in 3."""
    plan = replace(PLAN, min_nodes=1, partitions=2, epochs=1)
    times = Times(usual=10.0, hop=2.0, fetch=5.0, dispatch=1.0, validation={"c0000": 3.0})
    done = visits(run(plan, FixedSearch([{"lr": 0.1}, {"lr": 0.2}]), times, nodes=NODES[:1]))
    # The second partition came while the first was trained.
    assert [v.fetch_seconds for v in done] == [5.0, 0.0, 0.0, 0.0]
    assert {v.hop_seconds for v in done} == {2.0}
    assert [v.started for v in done[:2]] == [1.0, 19.0]
    assert sorted((v.unit.config, v.seconds) for v in done)[:2] == [("c0000", 10.0), ("c0000", 13.0)]


def test_saves_behind_the_next_unit_cost_the_node_nothing() -> None:
    """Two configs take turns on one node; a third would have to wait for the second one's save."""
    plan, times = replace(PLAN, min_nodes=1, partitions=2, epochs=1), Times(usual=10.0, hop=1.0, saving=4.0)
    done = run(plan, FixedSearch([{"lr": 0.1}, {"lr": 0.2}]), times, nodes=NODES[:1])
    assert [v.started for v in visits(done)] == [0.0, 11.0, 22.0, 33.0]
    assert {(v.hop_seconds, v.save_seconds) for v in visits(done)} == {(1.0, 4.0)}
    assert done.seconds == 48.0
    again = measured(done.events, plan)
    assert (again.hop, again.saving, again.dispatch) == (1.0, 4.0, 0.0)
    slow = run(plan, FixedSearch([{"lr": 0.1}, {"lr": 0.2}]), replace(times, saving=15.0), nodes=NODES[:1])
    assert [v.hop_seconds for v in visits(slow)] == [1.0, 5.0, 5.0, 5.0], "one state at a time"


def test_a_seed_is_a_history() -> None:
    faults = """
        kill node-1 at 25 for 20
        crash node-2 at 33
        slow node-3 at 40 by 3 for 30
        kill leader at 51
        drain node-0 at 72 within 4 for 20
    """
    first = run(spread=0.3, faults=faults)
    assert run(spread=0.3, faults=faults).events == first.events
    assert run(replace(PLAN, seed=4), spread=0.3, faults=faults).events != first.events
    assert len({v.seconds for v in visits(first)}) == len(visits(first))


def test_a_dead_node_is_noticed_when_its_lease_ends_and_comes_back() -> None:
    done = run(faults="kill node-1 at 18 for 37")
    left, came = _about("node-1", done.events)
    assert isinstance(left, ev.NodeLeft)
    assert isinstance(came, ev.NodeJoined)
    on_it = [v for v in visits(done) if v.node == "node-1"]
    assert not [v for v in on_it if 10.0 <= v.started < 55.0]
    assert on_it[-1].started >= 55.0
    withdrawn = next(e.token for e in done.events if isinstance(e, ev.UnitWithdrawn))
    lost = next(
        e.attempt.unit for e in done.events if e.revision == withdrawn and isinstance(e, ev.UnitAssigned)
    )
    # Until its lease has ended nobody else may have its config.
    assert min(v.started for v in visits(done) if v.unit.config == lost.config and v.started > 10.0) >= 23.0


def test_a_node_without_time_to_finish_hands_its_unit_on() -> None:
    """Its unit is from 10 to 20 s; a batch takes 0.1 s, the save 1."""
    times = Times(usual=10.0, saving=1.0)
    done = run(times=times, faults="drain node-1 at 13.25 within 6")
    (part,) = [v for v in visits(done) if not v.whole]
    assert (part.node, part.started, part.batches, part.seconds) == ("node-1", 10.0, 33, pytest.approx(3.3))
    assert (part.hop_seconds, part.save_seconds) == (1.0, 0.0), "a node that leaves waits for its save"
    (rest,) = [v for v in visits(done) if v.skip]
    assert (rest.unit, rest.batches, rest.input) == (part.unit, 67, part.output)
    assert rest.seconds == pytest.approx(6.7)
    assert rest.node != "node-1"
    assert not [v for v in visits(done) if v.node == "node-1" and v.started > 10.0]
    assert [type(event) for event in _about("node-1", done.events)] == [ev.NodeLeft]
    assert len([v for v in visits(done) if v.whole]) == 48


def test_measured_times_forecast_the_same_run() -> None:
    """Also on another number of nodes than measured, where no unit runs where it ran."""
    done = run(times=UNEVEN, spread=0.1)
    found = measured(done.events, PLAN)
    assert run(times=found).seconds == pytest.approx(done.seconds, rel=0.02)
    alone, single = NODES[:1], replace(PLAN, min_nodes=1)
    forecast, true = (run(single, times=times, nodes=alone).seconds for times in (found, UNEVEN))
    assert forecast == pytest.approx(true, rel=0.1)


def _about(node: str, events: Sequence[Event]) -> list[Event]:
    """That it came or left, but for its first coming and after the run's end."""
    events = [
        e
        for e in events
        if (isinstance(e, ev.NodeLeft) and e.node == node)
        or (isinstance(e, ev.NodeJoined) and e.node.name == node)
    ]
    return events[1:]


@pytest.mark.parametrize(
    ("faults", "comings"),
    [
        ("kill node-1 at 30 for 20", [50.0]),
        ("kill node-1 at 30 for 10\nkill node-1 at 35 for 20", [55.0]),
        ("kill node-1 at 30\nkill node-1 at 35 for 5", []),
        ("kill node-1 at 30\njoin node-1 at 45\nkill node-1 at 60 for 5", [45.0, 65.0]),
        ("drain node-1 at 30 for 10\nkill node-1 at 35 for 20", [55.0]),
    ],
)
def test_a_node_is_back_when_all_its_outages_are_over(faults: str, comings: list[float]) -> None:
    """The longest one counts; a node with a join does join."""
    done = run(faults=faults, times=Times(usual=1.0), plan=replace(PLAN, epochs=10))
    assert done.state.outcome == "finished"
    begins = sorted(v.started for v in visits(done) if v.node == "node-1")
    gaps = [late for early, late in pairwise(begins) if late > early + 3.0]
    assert gaps == [coming for coming in comings if coming > 30.0]
    joined = [event for event in _about("node-1", done.events) if isinstance(event, ev.NodeJoined)]
    assert len(joined) == len(comings)


@pytest.mark.parametrize("value", ["1", True, float("nan"), -1.0, 1e308, 10**400])
def test_a_value_that_is_no_finite_number_is_reported(value: Any) -> None:
    for call in (
        lambda: Times(usual=value),
        lambda: Times(pairs={("c0000", "node-0"): value}),
        lambda: Fault("kill", "node-0", value),
        lambda: Fault("slow", "node-0", 1.0, factor=value),
        lambda: simulate(PLAN, NODES, LongestRemaining(), SIX, Times(), SyntheticMetrics({}, 8), start=value),
    ):
        with pytest.raises(ScheduleError, match="must be a finite number"):
            call()


def test_an_impossible_simulation_is_reported() -> None:
    toy = SyntheticMetrics({}, 8)
    for nodes in ([], [NODES[0], NODES[0]]):
        with pytest.raises(ScheduleError, match="one at least, and no name twice"):
            simulate(PLAN, nodes, LongestRemaining(), SIX, Times(), toy)
    with pytest.raises(ScheduleError, match="more than 100000000 units"):
        simulate(replace(PLAN, epochs=10**9), NODES, LongestRemaining(), SIX, Times(), toy)


def test_the_table_of_times() -> None:
    times = Times(usual=7.0, configs={"c0001": 4.0}, nodes={"node-1": 1.2}, pairs={("c0001", "node-0"): 1.0})
    took = {(v.unit.config, v.node): v.seconds for v in visits(run(times=times))}
    assert took["c0000", "node-0"] == 7.0
    assert took["c0000", "node-1"] == pytest.approx(8.4)
    assert (took["c0001", "node-0"], took["c0001", "node-1"], took["c0001", "node-2"]) == (
        1.0,
        4.8,
        4.0,
    )


def test_while_nobody_leads_units_end_and_none_begin() -> None:
    done = run(faults="kill leader at 12\nkill leader at 41 for 15")
    changes = [e for e in done.events if isinstance(e, ev.LeaderChanged)]
    assert [change.leader is None for change in changes] == [False, True, False, True, False]
    begins = sorted({v.started for v in visits(done)})
    # The units of 10 to 20 s end; those of 17 s on find the next leader. (Its lease takes 5 s to end.)
    assert begins[:3] == [0.0, 10.0, 20.0]
    assert not [at for at in begins if 41.0 <= at < 56.0]
    assert 56.0 in begins
    assert {v.started: v.ended for v in visits(done)}[40.0] == 50.0, "committed meanwhile"
    assert len(visits(done)) == 48
