"""The optimality gap, while a run goes on and at its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from cerebro_elastic.core.history.machine import fold
from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.model.events import Event, UnitCommitted
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.reporting.gap import Gap, gap
from cerebro_elastic.reporting.progress import seconds_left, summary_line
from cerebro_elastic.reporting.tables import clock_text
from cerebro_elastic.scheduling.longest_remaining import LongestRemaining
from cerebro_elastic.simulation import Simulation, SyntheticMetrics, Times, simulate
from support.fault_sentences import read_faults
from support.world import FixedSearch

PLAN = Plan("a-run", partitions=4, epochs=2, min_nodes=4, max_nodes=5)
UNEVEN = Times(configs={f"c{i:04d}": 5.0 + i for i in range(7)})


def played(times: Times = UNEVEN, faults: str = "", plan: Plan = PLAN, configs: int = 7) -> Simulation:
    nodes = [Node(f"node-{i}", "host") for i in range(plan.min_nodes)]
    read = read_faults(faults)
    search = FixedSearch([{"lr": float(i)} for i in range(configs)])
    return simulate(plan, nodes, LongestRemaining(), search, times, SyntheticMetrics({}, 8), faults=read)


def gaps(events: Sequence[Event]) -> list[Gap]:
    """After each visit."""
    state, gaps_so_far = State(), []
    for event in events:
        state = fold(state, event)
        if isinstance(event, UnitCommitted) and (now := gap(state)):
            gaps_so_far.append(now)
    return gaps_so_far


def test_equal_units_without_costs_reach_the_bound() -> None:
    done = played(Times(usual=10.0), configs=8)
    assert gap(done.state) == Gap(160.0, 160.0, 160.0, 0.0)
    assert {round(after_visit.share, 9) for after_visit in gaps(done.events)} == {0.0}


def test_the_forecast_is_what_comes_once_units_are_known() -> None:
    """Once each node and config has done one. It does not foresee the pauses between units to come."""
    done = played(replace(UNEVEN, hop=0.5, dispatch=0.25))
    after_visits = gaps(done.events)
    assert all(now.forecast == pytest.approx(done.seconds, rel=0.06) for now in after_visits[8:])
    assert after_visits[-1].forecast == pytest.approx(done.seconds)


def test_a_lost_node_leaves_its_work_to_the_others_and_is_no_gap() -> None:
    """What is lost is a unit and the wait for its lease, not the node's speed."""
    alone = gap(played().state)
    lost = gap(played(faults="kill node-1 at 50").state)
    assert alone is not None
    assert lost is not None
    assert lost.bound > 1.2 * alone.bound
    assert lost.share < 0.1


def test_what_is_left_is_what_the_forecast_says() -> None:
    """If all units so far have taken longer, the whole rest does."""
    done = played(replace(UNEVEN, hop=0.5))
    middle = RunView(done.events[: len(done.events) // 2]).state
    usual, forecast = seconds_left(middle), gap(middle)
    assert usual is not None
    assert forecast is not None
    assert usual == forecast.forecast - middle.usage.elapsed == pytest.approx(done.seconds / 2, rel=0.15)
    assert f"about {clock_text(usual)} to go" in summary_line(middle, None, None)
    longer = replace(middle.usage, seconds=2 * middle.usage.seconds)
    assert seconds_left(replace(middle, usage=longer)) == pytest.approx(2 * usual, rel=0.15)
    assert seconds_left(replace(middle, nodes={})) is None
