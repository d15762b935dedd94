"""Homes of partitions: balanced, and moved as little as balance allows."""

from __future__ import annotations

from collections import Counter

import hypothesis.strategies as st
from hypothesis import given

from cerebro_elastic.core.placement import rebalance
from cerebro_elastic.core.values import Node

NAMES = [f"n{i}" for i in range(6)]
EVEN = dict.fromkeys([*NAMES, "a", "b"], 1.0)
nodes = st.lists(st.sampled_from(NAMES), unique=True, min_size=1).map(
    lambda names: [Node(name, "host", registration=at) for at, name in enumerate(names)]
)
partitions = st.integers(1, 20)
homes = st.dictionaries(st.integers(0, 19), st.sampled_from([*NAMES, "gone"]))
held = st.dictionaries(st.sampled_from(NAMES), st.frozensets(st.integers(0, 19)))


@given(homes, nodes, held, partitions)
def test_every_partition_has_one_home_and_no_node_two_more_than_another(homes, nodes, held, partitions):
    placed = rebalance(homes, nodes, held, partitions, EVEN)
    assert list(placed) == list(range(partitions))
    loads = Counter(placed.values())
    counts = [loads[node.name] for node in nodes]
    assert max(counts) - min(counts) <= 1
    assert sum(counts) == partitions


@given(homes, nodes, held, partitions)
def test_as_many_stay_as_balance_allows(homes, nodes, held, partitions):
    placed = rebalance(homes, nodes, held, partitions, EVEN)
    before = Counter(homes[j] for j in range(partitions) if j in homes)
    share, odd = divmod(partitions, len(nodes))
    keep = sum(min(before[node.name], share) for node in nodes)
    most = keep + min(odd, sum(before[node.name] > share for node in nodes))
    assert sum(homes.get(j) == home for j, home in placed.items()) == most


@given(homes, nodes, held, partitions)
def test_a_balanced_placement_is_left_alone(homes, nodes, held, partitions):
    placed = rebalance(homes, nodes, held, partitions, EVEN)
    assert rebalance(placed, nodes, held, partitions, EVEN) == placed


def test_a_homeless_partition_goes_to_who_holds_it() -> None:
    two = [Node("a", "host"), Node("b", "host")]
    assert rebalance({}, two, {"a": {1, 3}, "b": {0, 2}}, 4, EVEN) == {0: "b", 1: "a", 2: "b", 3: "a"}


def test_a_node_that_gives_away_keeps_what_it_holds() -> None:
    two = [Node("a", "host"), Node("b", "host")]
    placed = rebalance(dict.fromkeys(range(4), "a"), two, {"a": {1, 2}}, 4, EVEN)
    assert placed == {0: "b", 1: "a", 2: "a", 3: "b"}


factors = st.sampled_from([0.25, 0.5, 1.0, 1.0, 2.0, 5.0])
speeds = st.fixed_dictionaries(dict.fromkeys(NAMES, factors))


@given(homes, nodes, held, partitions, speeds)
def test_no_other_shares_are_done_earlier(homes, nodes, held, partitions, speeds):
    placed = rebalance(homes, nodes, held, partitions, speeds)
    assert list(placed) == list(range(partitions))
    longest = max(count * speeds[name] for name, count in Counter(placed.values()).items())
    # In less time, all nodes together could not do that many.
    less = longest - 1e-9
    assert sum(int(less / speeds[node.name]) for node in nodes) < partitions


@given(homes, nodes, held, partitions, speeds)
def test_who_gets_nothing_would_hold_all_up(homes, nodes, held, partitions, speeds):
    loads = Counter(rebalance(homes, nodes, held, partitions, speeds).values())
    longest = max(count * speeds[name] for name, count in loads.items())
    assert all(loads[node.name] or speeds[node.name] >= longest for node in nodes)


def test_without_nodes_nothing_is_placed() -> None:
    assert rebalance({0: "a"}, [], {}, 3, {}) == {}
