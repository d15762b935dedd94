"""Schedules of every policy are valid; no policy uses what it cannot know; bad input is reported."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from cerebro_elastic.errors import ScheduleError
from cerebro_planner import Disturbances, Instance, Outage, Schedule, instance, schedule
from cerebro_planner.planner import POLICIES
from support.schedules import judge

CHEAP = sorted(POLICIES.keys() - {"exact"})


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    """Small ones of every kind."""
    configs, nodes, partitions = draw(st.integers(1, 5)), draw(st.integers(1, 4)), draw(st.integers(1, 5))
    times = st.integers(0, 9).map(float)
    shape = [configs, nodes] if draw(st.booleans()) else [configs, partitions, nodes]

    def many(count: int) -> list[float]:
        return draw(st.lists(times, min_size=count, max_size=count))

    held = np.array([draw(st.sets(st.integers(0, nodes - 1), min_size=1)) for _ in range(partitions)])
    return instance(
        np.reshape(many(int(np.prod(shape))), shape),
        [[n in holders for holders in held] for n in range(nodes)],
        sizes=many(partitions),
        epochs=draw(st.lists(st.integers(0, 3), min_size=configs, max_size=configs)),
        hop=many(configs),
        fetch=draw(st.sampled_from([0.0, 2.0, inf])),
        node_ready=many(nodes),
        config_ready=many(configs),
    )


@settings(max_examples=30)
@given(instances(), st.sampled_from(CHEAP), st.integers(0, 3))
def test_every_policy_makes_valid_schedules(problem: Instance, policy: str, seed: int) -> None:
    judge(problem, schedule(problem, policy, seed, seconds=0.001))


@settings(max_examples=12, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(instances(), st.integers(0, 99))
def test_disturbances_leave_valid_schedules(problem: Instance, seed: int) -> None:
    actual = problem.durations * np.random.default_rng(seed).lognormal(0, 0.5, problem.durations.shape)
    outages = [Outage(0, 3.0, 7.0), Outage(problem.nodes - 1, 8.0, 9.0)]
    found = schedule(problem, "auto", seed, 0.001, Disturbances(actual, outages))
    judge(problem, found, actual)
    for node, start, end in ((o.node, o.start, o.end) for o in outages):
        on = found.visits.node == node
        assert not ((found.visits.start[on] < end) & (found.visits.end[on] > start + 1e-9)).any()


def costs(configs: int, nodes: int, seed: int) -> Any:
    """Seconds of configs that differ, on nodes of three speeds: ``[C, N]``."""
    rng = np.random.default_rng(seed)
    return rng.choice([1.0, 2.0, 4.0, 8.0, 11.0, 16.0, 21.0], configs)[:, None] / rng.choice(
        [0.5, 1, 2], nodes
    )


def ring(nodes: int, replicas: int) -> Any:
    """Each partition on ``replicas`` nodes, balanced."""
    return sum(np.roll(np.eye(nodes, dtype=int), k, axis=0) for k in range(replicas))


@pytest.mark.parametrize(("configs", "nodes"), [(16, 8), (16, 16), (64, 8)])
def test_open_shops_reach_the_bound(configs: int, nodes: int) -> None:
    for seed in range(3):
        for durations in (costs(configs, nodes, seed), np.ones((configs, nodes))):
            assert schedule(durations, seed=seed, seconds=60.0).gap <= 0.005, "it ends at the bound"


def test_the_papers_example() -> None:
    """Figure 5: three configs of 3 and two of 6 on three nodes, for which task-parallel needs 9."""
    assert schedule([[1.0] * 3] * 3 + [[2.0] * 3] * 2).makespan == 7.0


@pytest.mark.parametrize("replicas", [2])
def test_replicas_are_used_to_the_bound(replicas: int) -> None:
    for seed in range(3):
        problem = instance(costs(16, 8, seed), ring(8, replicas))
        for seconds in (0.3, 3.0, 30.0):  # on a busy machine less is tried in the same time
            found = schedule(problem, seconds=seconds)
            judge(problem, found)
            if found.gap <= 0.03:
                break
        assert found.gap <= 0.03
        alone = schedule(costs(16, 8, seed), seconds=0.1)
        assert found.makespan <= alone.makespan


def test_a_dead_nodes_work_goes_to_the_replicas() -> None:
    problem = instance(np.ones((12, 4)), ring(4, 2))
    found = schedule(problem, disturbances=Disturbances(outages=[Outage(1, 2.5)]))
    judge(problem, found)
    assert [(v.node, v.start) for v in found.lost] == [(1, 2.0)]
    assert found.makespan <= 2 + 42 / 3, "the other three share what is left"


@pytest.mark.parametrize("seed", range(3))
def test_the_dispatcher_learns_a_units_seconds_only_at_its_end(seed: int) -> None:
    """Nor does it when it keeps nodes free for the longest config."""
    rng = np.random.default_rng(seed)
    durations = np.repeat(np.append(rng.uniform(1, 10, 20), 16.0)[:, None], 8, axis=1)
    actual = durations * rng.lognormal(0, 0.1, durations.shape)
    slower = actual.copy()
    slower[-1] *= 1.5
    runs = [schedule(durations, disturbances=Disturbances(times)).visits for times in (actual, slower)]
    first = min(run.end[run.config == 20][0] for run in runs)
    early = [run.start < first for run in runs]
    for name in ("config", "node", "start"):
        assert getattr(runs[0], name)[early[0]].tolist() == getattr(runs[1], name)[early[1]].tolist()


def test_the_same_arguments_give_the_same_schedule() -> None:
    def fields(found: Schedule) -> list[Any]:
        return [getattr(found.visits, name).tolist() for name in ("config", "partition", "node", "start")]

    problem = instance(costs(12, 6, 1), ring(6, 2))
    for policy in CHEAP:
        assert fields(schedule(problem, policy, 5, 0.05)) == fields(schedule(problem, policy, 5, 0.05)), (
            policy
        )


def test_fetching_pays_when_waiting_costs_more() -> None:
    durations, home = np.ones((8, 2)), np.array([[1, 1], [0, 0]])
    stays = schedule(instance(durations, home))
    fetches = schedule(instance(durations, home, fetch=2.0))
    dear = schedule(instance(durations, home, fetch=100.0))
    assert (stays.makespan, dear.makespan) == (16.0, 16.0)
    assert fetches.makespan <= 11.0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"durations": [[1.0, -2.0]]}, r"durations\[0, 1\] is -2.0"),
        ({"durations": [1.0, 2.0]}, r"shape \(2,\)"),
        ({"durations": [[1.0, 1.0]], "availability": [[1, 0], [1, 0]]}, "no node holds partition 1"),
        ({"durations": [[1.0]], "hop": [1.0, 2.0]}, r"hop has the shape \(2,\)"),
    ],
)
def test_bad_instances_are_reported(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ScheduleError, match=said):
        instance(**arguments)


def test_bad_arguments_are_reported() -> None:
    with pytest.raises(ScheduleError, match="did you mean 'random'"):
        schedule([[1.0]], "randon")
    with pytest.raises(ScheduleError, match="seconds is -1"):
        schedule([[1.0]], seconds=-1)
    with pytest.raises(ScheduleError, match="an outage ends after it starts"):
        schedule([[1.0]], disturbances=Disturbances(outages=[Outage(0, 3.0, 2.0)]))
    with pytest.raises(
        ScheduleError, match=r"partitions \[1\] are held only by nodes that are away for good"
    ):
        schedule(np.ones((4, 2)), disturbances=Disturbances(outages=[Outage(1, 1.5)]))
    with pytest.raises(ScheduleError, match="must be that of durations"):
        schedule([[1.0]], disturbances=Disturbances([1.0]))


def test_the_documents_examples_run() -> None:
    document = Path(__file__).parents[3] / "docs" / "reference" / "openshop.md"
    names: dict[str, Any] = {}
    for block in document.read_text().split("```python\n")[1:]:
        exec(block.split("```")[0], names)
