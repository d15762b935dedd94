"""Decisions in a state: which nodes get units, which configs fail, which nodes are quarantined, which
partitions move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from cerebro_elastic.core.decisions.assignment import MOST_AT_ONCE
from cerebro_elastic.core.decisions.decide import decide
from cerebro_elastic.core.decisions.moment import used_nodes
from cerebro_elastic.core.model.attempts import Attempt, Failure, FailureKind
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.events import ConfigEnded, Event, HomesAssigned, NodeQuarantined, UnitAssigned
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import SpeedFactor, State, Streak
from cerebro_elastic.core.model.units import Unit
from cerebro_elastic.scheduling.longest_remaining import LongestRemaining
from support.builders import config, failure, nodes
from support.world import FixedSearch

UNIT = Unit("c0", 0, 0)


def state(
    names: str = "ab",
    partitions: int = 4,
    homes: Mapping[int, str] | None = None,
    most: int = 8,
    **more: object,
) -> State:
    """One config that has begun, on nodes with these names, the first one longest there."""
    even = {j: names[j % len(names)] for j in range(partitions)}
    known = State(
        plan=Plan("r", partitions, 2, max_nodes=most),
        configs={"c0": config()},
        nodes=nodes(names),
        homes={j: tuple(names) for j, names in (even if homes is None else homes).items()},
        revision=20,
    )
    return replace(known, **more)  # type: ignore[arg-type]


def decided(given: State) -> list[Event]:
    return decide(given, LongestRemaining(), FixedSearch([]))


def failing(
    kind: FailureKind = FailureKind.CRASH,
    times: int = 3,
    node: str = "a",
    quarantined: bool = False,
    of: Sequence[str] = ("x", "y"),
    **more: object,
) -> State:
    """On ``node``, units of the configs ``of`` failed in turn; these configs are given up."""
    streak = Streak(times, 15, kind, "boom")
    given = state(streaks={node: streak}, quarantined={node: "why"} if quarantined else {}, **more)
    failures = [
        failure(Unit(of[at % len(of)], 0, 0), kind, node, attempt=16 - times + at) for at in range(times)
    ]
    past = {
        name: config(name, status=Status.FAILED, failures=tuple(f for f in failures if f.unit.config == name))
        for name in of
    }
    return replace(given, configs={**given.configs, **past})


def used(given: State) -> list[str]:
    assert given.plan is not None
    return [node.name for node in used_nodes(given, given.plan)]


def drained(given: State, *names: str) -> State:
    return replace(
        given, nodes={n: replace(node, drain=9.0 if n in names else None) for n, node in given.nodes.items()}
    )


def test_a_node_that_leaves_or_is_quarantined_gets_no_unit_and_another_takes_its_place() -> None:
    three = state("abc", most=2)
    assert used(three) == ["a", "b"]
    assert used(drained(three, "a")) == ["b", "c"]
    assert used(replace(three, quarantined={"b": "why"})) == ["a", "c"]
    assert used(drained(three, "a", "b", "c")) == []


def test_a_quarantined_node_is_used_if_no_other_is_left_unless_the_fault_is_its_own() -> None:
    kinds = (FailureKind.CRASH, FailureKind.DISK_FULL, FailureKind.DAMAGED_DATA)
    crashed, full, damaged = (failing(kind, quarantined=True) for kind in kinds)
    assert used(crashed) == used(full) == used(damaged) == ["b"]
    assert used(drained(crashed, "b")) == ["a"]
    assert used(drained(full, "b")) == used(drained(damaged, "b")) == []
    assert decided(drained(full, "b")) == [], "homes stay, and the config waits"


@pytest.mark.parametrize(
    ("kind", "times", "seconds"),
    [
        (FailureKind.CRASH, 2, None),
        (FailureKind.CRASH, 5, 240.0),
        (FailureKind.CRASH, 2000, 3600.0),
        (FailureKind.STORAGE, 1, 60.0),
        (FailureKind.DAMAGED_DATA, 3, 60.0),
    ],
)
def test_a_node_on_which_units_keep_failing_is_quarantined_longer_each_time(
    kind: FailureKind, times: int, seconds: float | None
) -> None:
    asides = [a for a in decided(failing(kind, times)) if isinstance(a, NodeQuarantined)]
    assert [(a.node, a.failure, a.seconds) for a in asides] == ([("a", 15, seconds)] if seconds else [])
    assert all("boom" in a.why for a in asides)


def test_a_storage_that_no_node_reaches_counts_against_none() -> None:
    """Or all would stand still after a long outage for as long as it has lasted."""

    def seconds(*others: FailureKind) -> list[float]:
        failed = failing(FailureKind.STORAGE, times=4)
        streaks = {name: Streak(1, 14, kind, "boom") for name, kind in zip("bc", others, strict=False)}
        quarantined = dict.fromkeys(streaks, "why")
        given = replace(failed, streaks={**failed.streaks, **streaks}, quarantined=quarantined)
        return [a.seconds for a in decided(given) if isinstance(a, NodeQuarantined)]

    everybody = [FailureKind.STORAGE] * (len(failing().nodes) - 1)
    assert seconds(*everybody) == [60.0]
    assert seconds(*everybody[1:]) == [480.0], "another node reaches it"
    assert seconds(FailureKind.DISK_FULL, *everybody[1:]) == [480.0]


def test_a_node_is_not_to_blame_for_one_configs_failures() -> None:
    def asides(given: State) -> list[str]:
        return [a.node for a in decided(given) if isinstance(a, NodeQuarantined)]

    assert asides(failing(times=7, of=["x"])) == []
    assert asides(failing(FailureKind.DAMAGED_DATA, times=3, of=["x"])) == ["a"], "by its kind the node's"
    assert asides(failing(FailureKind.DISK_FULL, times=1, of=["x"])) == ["a"]
    folds = failing(times=7, of=["x.f0", "x.f1"])
    members = {name: replace(folds.configs[name], member_of="x") for name in ("x.f0", "x.f1")}
    assert asides(replace(folds, configs={**folds.configs, **members})) == [], (
        "they are trainings of one config"
    )
    several = failing(times=4)
    assert asides(several) == ["a"]
    x = several.configs["x"]
    x = replace(x, failures=tuple(replace(f, place="KeyError at net.py:7") for f in x.failures))
    elsewhere = replace(x.failures[0], node="b", attempt=3)
    alike = replace(x, failures=(*x.failures, elsewhere))
    assert asides(replace(several, configs={**several.configs, "x": alike})) == [], (
        "two of the four are x's own"
    )


def test_a_config_that_fails_alike_on_two_nodes_gets_no_third_attempt() -> None:
    def ends(*failures: Failure) -> list[str]:
        failing = config(failures=failures)
        return [a.reason for a in decided(state(configs={"c0": failing})) if isinstance(a, ConfigEnded)]

    first = failure(UNIT, FailureKind.EXCEPTION, "a", attempt=11, place="KeyError at net.py:7")
    assert ends(first, replace(first, node="b", attempt=12)) == [
        "epoch 1, partition 0 failed alike on a, b: exception: boom"
    ]
    assert ends(first, replace(first, attempt=12)) == [], "on one node"
    assert ends(first, replace(first, node="b", attempt=12, place="KeyError at net.py:8")) == []
    assert ends(replace(first, place=""), replace(first, node="b", attempt=12, place="")) == []


def test_a_failure_quarantines_once_and_after_release_one_more_suffices() -> None:
    def asides(given: State) -> list[float]:
        return [a.seconds for a in decided(given) if isinstance(a, NodeQuarantined)]

    assert asides(failing(quarantined_for={"a": 15})) == []
    assert asides(failing(times=4, quarantined_for={"a": 11})) == [120.0]
    assert asides(failing(times=2, quarantined_for={"a": 11})) == [60.0], "on probation"
    assert asides(failing(quarantined=True)) == []
    assert asides(failing(node="gone")) == []
    full = failing(FailureKind.DISK_FULL, times=1)
    assert asides(full) == [60.0]
    started_again = {**full.nodes, "a": replace(full.nodes["a"], registration=16)}
    assert asides(replace(full, nodes=started_again)) == [], "its disk may have been freed since"
    busy = {"a": Attempt(UNIT, "a", registration=1, config_revision=9, token=19)}
    assert asides(failing(attempts=busy)) == [], "it is judged when it is idle"


# What moves.


def moved(given: State) -> Counter[str] | None:
    """How many partitions each node is home to afterwards, if any move."""
    placed = [a for a in decided(given) if isinstance(a, HomesAssigned)]
    return Counter(name for names in placed[0].homes.values() for name in names) if placed else None


def paced(**factors: float) -> dict[str, SpeedFactor]:
    return {name: SpeedFactor(factor, 9) for name, factor in factors.items()}


def test_partitions_move_away_from_leaving_and_quarantined_nodes_and_to_new_ones() -> None:
    assert moved(state()) is None
    assert moved(drained(state(), "a")) == {"b": 4}
    assert moved(replace(state(), quarantined={"b": "why"})) == {"a": 4}
    assert moved(replace(state(), nodes={"a": Node("a", "h", registration=1)})) == {"a": 4}
    assert moved(state("abc", homes=dict.fromkeys(range(4), "a"))) == {"a": 2, "b": 1, "c": 1}
    six = {j: "abc"[j % 3] for j in range(6)}
    assert moved(state("abcd", partitions=6, homes=six)) == {"a": 2, "b": 2, "c": 1, "d": 1}
    assert moved(state("abc", partitions=2, homes={0: "a", 1: "b"})) is None, "there are not enough"
    assert moved(drained(state(), "a", "b")) is None


def test_partitions_move_for_speed_only_if_it_is_worth_while() -> None:
    eight = state(partitions=8)
    assert moved(state(partitions=16, speed_factors=paced(a=1.0, b=1.5))) is None, "10 instead of 12"
    assert moved(replace(eight, speed_factors=paced(a=1.0, b=3.0))) == {"a": 6, "b": 2}
    uneven = {**dict.fromkeys(range(6), "a"), 6: "b", 7: "b"}
    assert moved(state(partitions=8, homes=uneven, speed_factors=paced(a=1.0, b=3.0))) is None
    assert moved(state(partitions=8, homes=uneven, speed_factors=paced(a=1.0, b=1.0))) == {"a": 4, "b": 4}
    assert moved(replace(eight, speed_factors={"b": SpeedFactor(9.0, 2)})) is None, "two units are no pace"


def test_a_joining_node_gets_its_share_when_it_is_ready() -> None:
    """Until then units would wait there, while ready nodes run dry."""
    joined = state("ab", homes=dict.fromkeys(range(4), "a"))
    nodes = {**joined.nodes, "b": replace(joined.nodes["b"], starting=True)}
    assert moved(replace(joined, nodes=nodes)) is None
    assert moved(joined) == {"a": 2, "b": 2}
    both = {name: replace(node, starting=True) for name, node in joined.nodes.items()}
    assert moved(replace(joined, nodes=both, homes={})) == {"a": 2, "b": 2}, "no node is ready to wait for"
    again = replace(state("ab"), nodes=nodes)
    assert moved(again) is None, "whose ranks are started anew keeps its own"


def test_configs_wait_to_begin_while_enough_have_begun_for_the_nodes() -> None:
    def begun(now: State) -> list[str]:
        assigned = [event.attempt for event in decided(now) if isinstance(event, UnitAssigned)]
        return sorted(attempt.unit.config for attempt in assigned)

    new = {name: Config(name, {}) for name in ("c1", "c2", "c3", "c9")}
    given = state("abc", partitions=6, homes=dict.fromkeys(range(6), "abc"))
    assert given.plan is not None
    given = replace(
        given, configs={**new, **given.configs}, plan=replace(given.plan, begun_per_node=1, replicas=3)
    )
    assert begun(given) == ["c0", "c1", "c2"]
    wanted = {**given.configs, "c9": replace(new["c9"], by_hand=True)}
    assert begun(replace(given, configs=wanted)) == ["c0", "c1", "c9"], "people do not wait"
    ended = {**wanted, "c0": replace(wanted["c0"], status=Status.STOPPED)}
    assert begun(replace(given, configs=ended)) == ["c1", "c2", "c9"]
    two = replace(
        given, nodes={name: given.nodes[name] for name in "ab"}, homes=dict.fromkeys(range(6), ("a", "b"))
    )
    many = {name: config(name) for name in new}
    two = replace(two, configs={**given.configs, **many, "c5": Config("c5", {})}, attempts={})
    assert len({*begun(two)} - {"c5"}) == 2, "with fewer nodes those that have begun go on"


def test_of_many_idle_nodes_some_choose_at_a_time_and_nodes_without_a_unit_keep_none_waiting() -> None:
    """The first ten nodes are home to no partition."""
    names = "abcdefghijklmnopqrstuvwxyz"
    given = state(names, partitions=16, homes={j: names[10 + j] for j in range(16)}, most=len(names))
    given = replace(given, configs={f"c{i}": config(f"c{i}") for i in range(20)})
    for left in (10, 4, 0):
        assigned = [event.attempt for event in decided(given) if isinstance(event, UnitAssigned)]
        given = replace(given, attempts={**given.attempts, **{each.node: each for each in assigned}})
        assert 0 < len(assigned) <= MOST_AT_ONCE
        assert 16 - len(given.attempts) == left
