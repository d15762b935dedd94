"""Each policy keeps the contract, and has its own behaviour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings

from cerebro_elastic.core.model.interfaces import Policy, SchedulingContext
from cerebro_elastic.core.model.units import Unit
from cerebro_elastic.scheduling.longest_remaining import LongestRemaining, Randomized
from cerebro_elastic.scheduling.look_ahead import Auto, MonteCarlo, Target, VectorRearrangement
from cerebro_elastic.testing.policy_contract import check_policy, scheduling_contexts
from cerebro_planner.policy import Exact


@pytest.mark.parametrize(
    "make", [Auto, Exact, LongestRemaining, MonteCarlo, Randomized, Target, VectorRearrangement]
)
@settings(max_examples=25)
@given(context=scheduling_contexts())
def test_contract(make: Callable[[], Policy], context: SchedulingContext) -> None:
    check_policy(make, context)


def moment(seed: tuple[int, ...] = (0,), **remaining: float) -> SchedulingContext:
    """Two idle nodes, ``b`` the more loaded, and every config eligible on both."""
    return SchedulingContext(
        eligible={
            node: [Unit(config, 0, partition) for config in remaining]
            for partition, node in enumerate(("a", "b"))
        },
        remaining=remaining,
        load={"a": 1.0, "b": 2.0}.__getitem__,
        seconds=lambda _unit, _node: 1.0,
        seed=seed,
    )


def test_the_most_loaded_node_takes_the_config_with_most_remaining() -> None:
    chosen = LongestRemaining().choose(moment(c0=5.0, c1=9.0, c2=7.0))
    assert chosen == [("b", Unit("c1", 0, 1)), ("a", Unit("c2", 0, 0))]


def test_a_node_takes_the_unit_whose_batches_its_host_has() -> None:
    units = [Unit("c", 1, partition) for partition in range(8)]
    for policy in (LongestRemaining(), Auto()):
        for made in range(8):
            batches = {"a": {(1, made), (0, 0)}, "b": {(1, 0)}}
            context = SchedulingContext({"a": units}, {"c": 1.0}, {}, lambda _u, _n: 1.0, batches=batches)
            assert policy.choose(context) == [("a", Unit("c", 1, made))]


def test_random_differs_from_moment_to_moment_and_favours_none() -> None:
    picks = Counter(
        unit.config
        for revision in range(300)
        for _, unit in Randomized().choose(moment((7, revision), c0=1.0, c1=1.0, c2=1.0))
    )
    assert set(picks) == {"c0", "c1", "c2"}
    assert min(picks.values()) > 150, "two of three each time: about 200 of 300"
