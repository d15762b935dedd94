"""Policies that look ahead, in simulated runs."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from cerebro_elastic.core.invariants import check
from cerebro_elastic.core.model.events import ProfileDone, UnitCommitted
from cerebro_elastic.core.model.interfaces import Policy, RemainingWork, SchedulingContext
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan, Progress
from cerebro_elastic.core.model.units import Strategy, Unit
from cerebro_elastic.scheduling.longest_remaining import LongestRemaining
from cerebro_elastic.scheduling.look_ahead import (
    Auto,
    MonteCarlo,
    Target,
    VectorRearrangement,
)
from cerebro_elastic.simulation import Simulation, SyntheticMetrics, Times, redecide, simulate
from support.fault_sentences import read_faults
from support.world import FixedSearch

PLAN = Plan("r", partitions=3, epochs=2, min_nodes=3, max_nodes=3)
CONFIGS = 7
SEARCH = FixedSearch([{"x": i} for i in range(CONFIGS)])


def run(make: Callable[[], Policy], plan: Plan = PLAN, spread: float = 0.0, faults: str = "") -> Simulation:
    """A simulated run whose longest config is about as long as a node's load. It keeps all invariants."""
    rng = random.Random(plan.seed)
    seconds = {f"c{i:04d}": rng.lognormvariate(0, 0.5) for i in range(CONFIGS)}
    seconds["c0004"] = sum(seconds.values()) / plan.partitions
    nodes = [Node(f"n{k}", f"h{k}") for k in range(plan.min_nodes)]
    toy = SyntheticMetrics({}, plan.epochs * plan.partitions)
    disturbances = read_faults(faults)
    done = simulate(
        plan,
        nodes,
        make(),
        SEARCH,
        Times(configs=seconds),
        toy,
        faults=disturbances,
        spread=spread,
        lease=0.5,
    )
    assert check(done.events) == []
    assert done.state.outcome == "finished"
    return done


def test_looking_ahead_shortens_runs() -> None:
    plans = [replace(PLAN, seed=seed) for seed in range(3)]
    ahead, plain = (sum(run(policy, plan).seconds for plan in plans) for policy in (Auto, LongestRemaining))
    assert ahead < plain


@pytest.mark.parametrize("make", [Auto, MonteCarlo, Target, VectorRearrangement])
def test_replicas_a_death_and_a_join(make: Callable[[], Policy]) -> None:
    plan = replace(PLAN, epochs=1, replicas=2, min_nodes=2)
    done = run(make, plan, spread=0.3, faults="kill n1 at 3 for 4\njoin n7 at 6")
    assert redecide(done.events, make(), SEARCH).explanation is None, "another controller decides the same"


@pytest.mark.parametrize("make", [Auto, MonteCarlo, Target, VectorRearrangement])
def test_gangs_and_profiles_are_dispatched_by_the_plain_rule(make: Callable[[], Policy]) -> None:
    pairs = (Strategy("ddp", ranks=2, nodes=2), Strategy("fsdp", ranks=2, nodes=2))
    gangs = replace(PLAN, min_nodes=2, strategies=pairs)
    done = run(make, gangs)
    assert sum(isinstance(event, ProfileDone) for event in done.events) == 2 * CONFIGS
    assert done.events == run(LongestRemaining, gangs).events


def moment(left: RemainingWork) -> SchedulingContext:
    """Node ``a`` is idle, ``b`` is in a unit; ``long`` and ``short`` could go on."""
    return SchedulingContext(
        eligible={"a": [Unit("long", 0, 0), Unit("short", 0, 0)]},
        remaining={"long": 12.0, "short": 3.0, "busy": 1.0},
        load=lambda _node: 6.0,
        seconds=lambda _unit, _node: 1.0,
        remaining_work=lambda: left,
        size=len(left.configs) * len(left.holders) * len(left.nodes),
    )


# ``b`` will be free in no time, and has nothing else to do than what ``short`` has before it.
LEFT = RemainingWork(
    nodes={"a": 0.0, "b": 0.1},
    configs={"long": 0.0, "short": 0.0, "busy": 0.1},
    seconds={"long": [4.0, 4.0], "short": [1.0, 9.0], "busy": [1.0, 1.0]},
    undone={"long": [0], "short": [0, 1], "busy": []},
    later={"long": 0, "short": 0, "busy": 0},
    holders=[["a"], ["b"]],
)


def test_it_foresees_what_a_node_will_wait_for() -> None:
    """``short`` needs 9 seconds on ``b`` after its one on ``a``; the plain rule takes it for the shorter."""
    asked = moment(LEFT)
    assert LongestRemaining().choose(asked) == [("a", Unit("long", 0, 0))]
    assert Auto().choose(asked) == [("a", Unit("short", 0, 0))]


def evenness(progress: Progress, plan: Plan, seconds: dict[str, float]) -> tuple[float, float]:
    """How many epochs the configs of a simulated run were apart at most, and how long it took."""
    nodes = [Node(f"n{k}", f"h{k}") for k in range(plan.min_nodes)]
    search = FixedSearch([{"x": i} for i in range(len(seconds))])
    toy = SyntheticMetrics({}, plan.epochs * plan.partitions)
    done = simulate(replace(plan, progress=progress), nodes, Auto(), search, Times(configs=seconds), toy)
    assert check(done.events) == []
    units = dict.fromkeys(seconds, 0)
    apart = 0
    for event in done.events:
        if isinstance(event, UnitCommitted):
            units[event.visit.unit.config] += 1
            apart = max(apart, max(units.values()) - min(units.values()))
    return apart / plan.partitions, done.seconds


def test_configs_keep_within_an_epoch_of_each_other_where_that_costs_nothing() -> None:
    plan = Plan("r", partitions=3, epochs=6, min_nodes=2, max_nodes=2)
    seconds = {f"c{i:04d}": 1.0 + 0.3 * i for i in range(5)}
    apart, free = evenness(Progress.FREE, plan, seconds)
    assert apart > 2
    for progress in (Progress.AFFORDABLE, Progress.EVEN):
        apart, length = evenness(progress, plan, seconds)
        assert apart <= 1
        assert length <= 1.01 * free
