"""Fetching on demand: when an idle node gets a unit on a partition that is at home elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import pytest

from cerebro_elastic.core.decisions.decide import decide
from cerebro_elastic.core.history.derived import (
    Batches,
    add_batches,
    add_cached,
    batches_at_hand,
    cached_partitions,
)
from cerebro_elastic.core.model.attempts import Attempt, Visit
from cerebro_elastic.core.model.events import Event, HomesAssigned, UnitAssigned
from cerebro_elastic.core.model.interfaces import Policy, SchedulingContext
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import SpeedFactor, State, Usage
from cerebro_elastic.core.model.units import Phase, Unit
from cerebro_elastic.scheduling.longest_remaining import LongestRemaining
from cerebro_elastic.scheduling.look_ahead import Auto, Target
from support.builders import config, failure, nodes, visit
from support.world import FixedSearch

PLAN = Plan("r", partitions=2, epochs=1, max_nodes=2, on_demand=True)
NAMES = ("c0", "c1", "c2", "c3")
STATE = State(
    plan=PLAN,
    configs={name: config(name, visited=(1,)) for name in NAMES},
    nodes={name: replace(node, host=name) for name, node in nodes("ab").items()},
    homes={0: ("a",), 1: ("b",)},
    timings=dict.fromkeys(NAMES, 10.0),
    speed_factors={"a": SpeedFactor(1.0, 5, 20), "b": SpeedFactor(1.0, 5, 20)},
    attempts={"a": Attempt(Unit("c0", 0, 0), "a", 1, 9, expected=10.0, last_visit_ended=100.0)},
    usage=Usage(20, 200.0, began=90.0, until=100.0),
    fetches=(5.0,),
    revision=30,
)
"""``b`` has nothing left to do that it holds; ``a`` has units of 10 s of all four configs."""


def decided(state: State, policy: Policy | None = None) -> list[Event]:
    return decide(state, policy or Auto(), FixedSearch([]))


def given(state: State, policy: Policy | None = None) -> list[Attempt]:
    return [action.attempt for action in decided(state, policy) if isinstance(action, UnitAssigned)]


def failed(state: State, *names: str) -> State:
    """Failures on ``b``, one for each unit."""
    configs = {name: replace(state.configs[name], failures=(failure(Unit(name, 0, 0)),)) for name in names}
    return replace(state, configs={**state.configs, **configs})


@pytest.mark.parametrize("policy", [Auto(), Target()])
def test_an_idle_node_fetches_if_waiting_costs_more(policy: Policy) -> None:
    (attempt,) = given(STATE, policy)
    assert (attempt.node, attempt.unit.partition, attempt.expected) == ("b", 0, 15.0)
    assert attempt.unit.config != "c0", "that is in a unit"
    assert given(replace(STATE, fetches=(25.0,)), policy) == [], "``a`` would be done sooner"


@pytest.mark.parametrize("fetches", [(), (25.0,)])
def test_a_partition_on_the_nodes_host_costs_no_fetch(fetches: tuple[float, ...]) -> None:
    """Nor is it known only where a fetch was measured."""
    sibling = Node("z", "b", registration=9, cached=(0,))
    shared = replace(STATE, nodes={**STATE.nodes, "z": sibling}, plan=replace(PLAN, max_nodes=3))
    busy = Attempt(Unit("c1", 0, 1), "z", 9, 9, expected=10.0, last_visit_ended=100.0)
    shared = replace(shared, attempts={**STATE.attempts, "z": busy}, fetches=fetches)
    (attempt,) = given(shared)
    assert (attempt.node, attempt.unit.partition, attempt.expected) == ("b", 0, 10.0)
    assert given(replace(shared, plan=replace(PLAN, max_nodes=3, on_demand=False))) == []


class _Asking(LongestRemaining):
    """Records what it may fetch at each call: for a choice, then for a hint."""

    def __init__(self) -> None:
        self.may: list[set[tuple[str, str]] | None] = []

    def choose(self, instance: SchedulingContext) -> Sequence[tuple[str, Unit]]:
        may = None
        if (elsewhere := instance.elsewhere) is not None:
            may = {(n, c) for n in "ab" for c in NAMES for j in range(3) if elsewhere(n, c, j)}
        self.may.append(may)
        return super().choose(instance)


def may_fetch(state: State) -> list[set[tuple[str, str]] | None]:
    policy = _Asking()
    decided(state, policy)
    return policy.may


def test_an_idle_node_fetches_only_for_units_that_it_has_not_failed() -> None:
    assert may_fetch(STATE) == [{("b", "c1"), ("b", "c2"), ("b", "c3")}], "``a`` and c0 are busy"
    assert may_fetch(failed(STATE, "c1", "c2")) == [{("b", "c3")}]


def fetched(seconds: float, config: str = "c1", **fields: Any) -> Visit:
    """A visit on ``b`` that waited for its partition."""
    return visit(config, fetch_seconds=seconds, **{"node": "b", "attempt": 20, **fields})


def test_no_home_moves_because_of_a_fetch() -> None:
    after = replace(STATE, nodes=add_cached(STATE.nodes, fetched(5.0)))
    assert after.nodes["b"].cached == (0,)
    assert not any(isinstance(action, HomesAssigned) for action in decided(after))
    (attempt,) = given(after)
    assert attempt.expected == 10.0, "from now on it is here"


def test_batches_are_at_hand_for_all_nodes_of_a_host_and_the_last_epochs_count() -> None:
    nodes = [*STATE.nodes.values(), Node("z", "b", registration=9)]
    assert add_batches({}, fetched(0.0), PLAN) == {}
    plan = replace(PLAN, prefers_made=True)
    visits = [
        fetched(0.0, "c0", epoch=epoch, partition=partition)
        for epoch, partition in ((0, 1), (1, 0), (1, 1), (2, 0))
    ]
    held: Batches = reduce(lambda held, each: add_batches(held, each, plan), visits, {})
    at_hand = batches_at_hand(nodes, held)
    assert at_hand == {"a": set(), "b": {(1, 0), (1, 1), (2, 0)}, "z": {(1, 0), (1, 1), (2, 0)}}
    assert add_batches(held, fetched(0.0, epoch=2, phase=Phase.EVALUATE), plan) is held


def test_a_partition_that_a_cache_has_dropped_is_fetched_again() -> None:
    """The last that a node of the host has said counts, in the order of the attempts."""
    sibling = Node("z", "b", registration=9, cached=(0, 2), cached_as_of=15)
    nodes = {**STATE.nodes, "z": sibling}
    later = reduce(add_cached, [fetched(5.0, cached=(0, 1)), fetched(5.0, attempt=18, cached=())], nodes)
    assert (later["b"].cached, later["b"].cached_as_of) == ((0, 1), 20)
    assert cached_partitions(later.values())["z"] == {0, 1}
    dropped = add_cached(later, fetched(5.0, node="z", attempt=30, cached=(2,)))
    assert cached_partitions(dropped.values())["b"] == {2}
    again = add_cached(dropped, fetched(5.0, attempt=40))
    assert again["b"].cached == (0, 1), "without a report it is as before"
    left = {name: node for name, node in dropped.items() if name != "z"}
    assert cached_partitions(left.values())["b"] == {0, 1}
