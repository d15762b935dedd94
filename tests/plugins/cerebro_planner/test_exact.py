"""CP-SAT, where it is installed; and the errors where it is not, or where the problem is unsupported."""

from __future__ import annotations

import re
from importlib.util import find_spec
from math import inf

import numpy as np
import pytest

from cerebro_elastic.core.invariants import check
from cerebro_elastic.core.model.events import Ordered
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.errors import MissingExtra
from cerebro_elastic.registry import install_extra, load
from cerebro_elastic.simulation import Simulation, SyntheticMetrics, Times, redecide, simulate
from cerebro_planner import instance, joint, schedule
from cerebro_planner.policy import Exact
from support.fault_sentences import read_faults
from support.schedules import judge, judge_joint
from support.world import FixedSearch

installed = find_spec("ortools") is not None


@pytest.mark.skipif(not installed, reason="needs the extra exact")
def test_it_is_never_worse_than_what_it_starts_from() -> None:
    durations = np.random.default_rng(3).integers(1, 9, (7, 4)).astype(float)
    for problem in (instance(durations), instance(durations, np.ones((4, 3)))):
        begun, found = schedule(problem, seconds=0.01), schedule(problem, "exact", seconds=0.2)
        judge(problem, found)
        assert found.makespan <= begun.makespan


@pytest.mark.skipif(not installed, reason="needs the extra exact")
def test_the_joint_problem_is_solved_to_the_proof() -> None:
    rng = np.random.default_rng(5)
    seconds = rng.integers(2, 9, (3, 2))[:, :, None] / np.array([1.0, 2.0]) ** 0.7
    begun, found = joint(seconds, [2, 2], budget=0.0), joint(seconds, [2, 2], budget=20.0, policy="exact")
    judge_joint(seconds, [2, 2], found)
    assert found.makespan < 0.97 * begun.makespan, "it finds more"
    assert begun.bound < found.bound, "and knows more"
    assert found.makespan <= found.bound * 1.0001, "so that this is the best"


@pytest.mark.skipif(not installed, reason="needs the extra exact")
@pytest.mark.parametrize("seed", range(3))
def test_the_joint_problem_gets_no_worse(seed: int) -> None:
    rng = np.random.default_rng(seed)
    seconds = rng.integers(0, 5, (4, 3, 2)).astype(float)
    seconds[:, :, 1][rng.random((4, 3)) < 0.3] = inf
    begun, found = joint(seconds, [2, 2, 1], 0, 0.0), joint(seconds, [2, 2, 1], 0, 0.2, "exact")
    judge_joint(seconds, [2, 2, 1], found)
    assert begun.bound <= found.bound <= found.makespan <= begun.makespan


def run(faults: str = "", policy: str = "exact", spread: float = 0.0) -> Simulation:
    """A simulated run whose longest config is about as long as a node's load."""
    nodes = [Node(f"n{k}", f"h{k}") for k in range(3)]
    done = simulate(
        Plan("r", partitions=3, epochs=2, min_nodes=3, max_nodes=3),
        nodes,
        load("cerebro.schedulers", policy)(),
        SEARCH,
        Times(configs={f"c{i:04d}": seconds for i, seconds in enumerate(SECONDS)}),
        SyntheticMetrics({}, 6),
        faults=read_faults(faults),
        spread=spread,
        lease=0.5,
    )
    assert check(done.events) == []
    assert done.state.outcome == "finished"
    return done


SECONDS = (40.0, 100.0, 30.0, 50.0, 25.0, 60.0, 20.0)
SEARCH = FixedSearch([{"x": i} for i in range(len(SECONDS))])


@pytest.mark.skipif(not installed, reason="needs the extra exact")
@pytest.mark.parametrize("faults", ["", "kill n1 at 300\njoin n7 at 340"])
def test_a_run_is_planned_anew_after_faults_and_decided_again(faults: str) -> None:
    done = run(faults, spread=0.2)
    orders = [event for event in done.events if isinstance(event, Ordered)]
    assert all(event.order for event in orders)
    nodes = [{node for node, *_ in event.order} for event in orders]
    assert {"n0", "n1", "n2"} in nodes
    if "n7" in faults:
        assert {"n0", "n2", "n7"} in nodes
    assert run(faults, spread=0.2).events == done.events
    assert redecide(done.events, Exact(), SEARCH).explanation is None


@pytest.mark.skipif(not installed, reason="needs the extra exact")
def test_it_is_not_longer_than_what_auto_does() -> None:
    assert run().seconds <= run(policy="auto").seconds


@pytest.mark.skipif(installed, reason="the extra exact is installed")
def test_without_the_extra_it_says_what_to_install() -> None:
    with pytest.raises(MissingExtra, match=re.escape(install_extra("exact"))):
        schedule(np.ones((3, 2)), "exact", seconds=0.01)
    with pytest.raises(MissingExtra, match=re.escape(install_extra("exact"))):
        joint([[[2.0, 1.5]], [[2.0, 1.5]], [[2.0, 1.5]]], [2], budget=0.01, policy="exact")
