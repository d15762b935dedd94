"""Successive halving: the dispatcher learns which configs go on when that is decided, and no config waits
then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cerebro_elastic.errors import ScheduleError
from cerebro_planner import (
    Disturbances,
    Instance,
    Outage,
    Rungs,
    Schedule,
    instance,
    schedule,
)
from cerebro_planner.online import RULES
from cerebro_planner.planner import POLICIES
from support.schedules import judge


def trained(problem: Instance, found: Schedule) -> list[int]:
    """The epochs of each config."""
    visits = found.visits
    return [int(visits.epoch[visits.config == i].max()) + 1 for i in range(problem.configs)]


def halved(
    problem: Instance, halving: Rungs, policy: str = "auto", outages: Sequence[Outage] = ()
) -> tuple[Schedule, list[int]]:
    """A schedule, judged, and the epochs that it came to."""
    found = schedule(problem, policy, seconds=0.001, disturbances=Disturbances(None, outages, halving))
    epochs = trained(problem, found)
    judge(replace(problem, epochs=np.array(epochs)), found)
    return found, epochs


@pytest.mark.parametrize("rule", ["each", "synchronous"])
@pytest.mark.parametrize("policy", sorted(POLICIES.keys() - {"exact"}))
def test_the_best_go_on(rule: str, policy: str) -> None:
    durations = np.random.default_rng(1).uniform(1, 9, (8, 3))
    losses = [5, 2, 7, 1, 8, 3, 6, 4]
    _, epochs = halved(instance(durations), Rungs([1, 2, 5], losses, 2, rule), policy)
    assert epochs == [1, 5, 1, 5, 1, 2, 1, 2]


def test_nobody_waits_for_the_rung() -> None:
    """One node, so that configs come one after the other; the longest first."""
    problem = instance([[4.0], [3.0], [2.0], [1.0]])

    def order(losses: list[float], rule: str) -> list[int]:
        found, _ = halved(problem, Rungs([1, 2], losses, 2, rule))
        order: list[int] = found.visits.config.tolist()
        return order

    assert order([1, 2, 3, 4], "each") == [0, 0, 1, 1, 2, 3]
    # The best of two is among the best half of those that have come.
    assert order([1, 2, 3, 4], "asynchronous") == [0, 1, 0, 2, 3, 1]
    # The third arrival leaves one config that could displace the second best, but not the best.
    assert order([1, 2, 3, 4], "synchronous") == [0, 1, 2, 0, 3, 1]


def test_it_is_far_from_a_barrier() -> None:
    """The longest config survives: it need not wait for those that it has beaten."""
    durations = np.array([[4.0] * 4] + [[1.0] * 4] * 15)
    found, _ = halved(instance(durations), Rungs([1, 2, 4], np.arange(16)))
    assert found.makespan <= 1.02 * found.bound == 1.02 * 64.0


@settings(max_examples=20)
@given(st.integers(1, 9), st.integers(1, 4), st.sampled_from(RULES), st.integers(2, 4), st.integers(0, 999))
def test_schedules_are_valid(configs: int, nodes: int, rule: str, factor: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    times = rng.integers(0, 5, (configs, nodes)).astype(float)
    held = np.maximum(np.eye(nodes), rng.random((nodes, nodes)) < 0.3)
    problem = instance(times, held, epochs=2, config_ready=rng.integers(0, 5, configs))
    halving = Rungs([2, 3, 6], rng.random((configs, 3)), factor, rule)
    halved(problem, halving, outages=[Outage(0, 4.0, 9.0)])


@pytest.mark.parametrize(
    ("halving", "said"),
    [
        (Rungs([1, 1], [1.0, 2.0]), "each above the last"),
        (Rungs([1, 2], [1.0]), r"losses has the shape \(1,\)"),
        (Rungs([1, 2], [1.0, 2.0], rule="sync"), "no rule 'sync' exists"),
    ],
)
def test_bad_halving_is_reported(halving: Rungs, said: str) -> None:
    with pytest.raises(ScheduleError, match=said):
        schedule(np.ones((2, 2)), disturbances=Disturbances(halving=halving))
