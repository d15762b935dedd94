"""Homes of partitions: each on as many nodes as it shall be, balanced, and little moved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import hypothesis.strategies as st
from hypothesis import given

from cerebro_elastic.core.decisions.homes import rebalance
from cerebro_elastic.core.model.nodes import Node

NAMES = [f"n{i}" for i in range(6)]
EVEN = dict.fromkeys([*NAMES, *"abcd"], 1.0)
hosts = st.sampled_from(["host", "other", "third"])
nodes = st.lists(st.tuples(st.sampled_from(NAMES), hosts), unique_by=lambda n: n[0], min_size=1).map(
    lambda pairs: [Node(name, host, registration=at) for at, (name, host) in enumerate(pairs)]
)
partitions = st.integers(1, 20)
replicas = st.integers(1, 4)
places = st.lists(st.sampled_from([*NAMES, "gone"]), unique=True, max_size=4).map(tuple)
homes = st.dictionaries(st.integers(0, 19), places)
held = st.dictionaries(st.sampled_from(NAMES), st.frozensets(st.integers(0, 19)))
factors = st.sampled_from([0.25, 0.5, 1.0, 1.0, 2.0, 5.0])
speeds = st.fixed_dictionaries(dict.fromkeys(NAMES, factors))


def shares(placed: Mapping[int, tuple[str, ...]]) -> Counter[str]:
    return Counter(name for names in placed.values() for name in names)


@given(homes, nodes, held, partitions, speeds, replicas)
def test_each_partition_is_at_home_on_as_many_nodes_as_replicas(
    homes, nodes, held, partitions, speeds, replicas
):
    placed = rebalance(homes, nodes, held, partitions, speeds, replicas)
    assert list(placed) == list(range(partitions))
    assert all(len(set(names)) == len(names) == min(replicas, len(nodes)) for names in placed.values())


@given(homes, nodes, held, partitions, speeds, replicas)
def test_no_other_shares_are_done_earlier(homes, nodes, held, partitions, speeds, replicas):
    loads = shares(rebalance(homes, nodes, held, partitions, speeds, replicas))
    longest = max(count * speeds[name] for name, count in loads.items())
    # In less time all nodes together could not do that many, none of them one partition twice.
    less = longest - 1e-9
    could = sum(min(partitions, int(less / speeds[node.name])) for node in nodes)
    assert could < partitions * min(replicas, len(nodes))


@given(homes, nodes, held, partitions)
def test_as_many_stay_as_balance_allows(homes, nodes, held, partitions):
    single = {j: names[:1] for j, names in homes.items()}
    placed = rebalance(single, nodes, held, partitions, EVEN)
    before = shares({j: names for j, names in single.items() if j < partitions})
    share, odd = divmod(partitions, len(nodes))
    keep = sum(min(before[node.name], share) for node in nodes)
    most = keep + min(odd, sum(before[node.name] > share for node in nodes))
    assert sum(single.get(j) == names for j, names in placed.items()) == most


@given(nodes, partitions, speeds, replicas, st.data())
def test_a_loss_moves_what_was_lost_and_a_join_what_it_gets(nodes, partitions, speeds, replicas, data):
    everybody = rebalance({}, nodes, {}, partitions, speeds, replicas)
    assert rebalance(everybody, nodes, {}, partitions, speeds, replicas) == everybody
    lost = data.draw(st.sampled_from(nodes))
    left = [node for node in nodes if node is not lost] or [Node("a", "host")]
    speeds = {**speeds, "a": 1.0}
    fewer = rebalance(everybody, left, {}, partitions, speeds, replicas)
    back = rebalance(fewer, [*left, lost], {}, partitions, speeds, replicas)
    for before, after in ((everybody, fewer), (fewer, back)):
        least = sum(max(0, count - shares(before)[name]) for name, count in shares(after).items())
        moved = sum(len(set(after[j]) - set(before[j])) for j in after)
        assert moved == least if replicas == 1 else least <= moved <= 2 * least


def test_a_homeless_partition_goes_to_a_node_that_holds_it() -> None:
    two = [Node("a", "host"), Node("b", "host")]
    placed = rebalance({}, two, {"a": {1, 3}, "b": {0, 2}}, 4, EVEN)
    assert placed == {0: ("b",), 1: ("a",), 2: ("b",), 3: ("a",)}


def test_without_nodes_nothing_is_placed() -> None:
    assert rebalance({0: ("a",)}, [], {}, 3, {}) == {}
