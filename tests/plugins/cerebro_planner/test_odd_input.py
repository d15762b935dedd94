"""Any input to the planner gives a valid schedule, or our own error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cerebro_elastic.errors import ScheduleError
from cerebro_elastic.scheduling.openshop.instances import Instance
from cerebro_planner import (
    Disturbances,
    Outage,
    Rungs,
    instance,
    joint,
    lower_bound,
    schedule,
)
from cerebro_planner.planner import POLICIES
from support.schedules import judge, judge_joint

ODD: list[Any] = [
    *(None, True, False, "1", "", b"1", [], {}, {1}, object(), 1j, nan, inf, -inf, -1, -0.0, 0, 1, 2.0, 0.5),
    *(1e308, 5e-324, 1e12, 1e13, 10**400, 2**63, 10**9, Fraction(1, 3), np.float32(2), np.int8(1), np.True_),
    *(
        [1.0],
        ["1"],
        [[1.0]],
        [nan],
        [inf],
        [True],
        [None],
        [[1.0], [1.0, 2.0]],
        [[[2.0, 3.0]]],
        np.array("x"),
    ),
    *(np.ones(2), np.ones((2, 2), bool), np.array([["1", "2"]]), np.array(["NaT"], "datetime64[s]")),
]
odd = st.sampled_from(ODD)
sizes = st.sampled_from([0.0, 1e-12, 1e-3, 0.1, 1.0, 3.0, 1e6, 1e12])
ARGUMENTS = ("durations", "availability", "sizes", "epochs", "hop", "fetch", "node_ready", "config_ready")
TWO = [[1.0, 2.0], [3.0, 1.0]]


def scheduled(problem: Any, *rest: Any, **words: Any) -> None:
    """A schedule that an independent judge takes for valid, or ``ScheduleError``."""
    try:
        found = schedule(problem, *rest, **words)
    except ScheduleError:
        return
    known = problem if isinstance(problem, Instance) else instance(problem)
    disturbances = words.get("disturbances") or Disturbances()
    if disturbances.halving is None:
        judge(
            known,
            found,
            None if disturbances.durations is None else np.asarray(disturbances.durations, float),
        )
    for outage in disturbances.outages:
        on = found.visits.node == outage.node
        slack = 1e-9 * max(1.0, found.makespan)
        overlap = (found.visits.start[on] < outage.end) & (found.visits.end[on] > outage.start + slack)
        assert not overlap.any(), outage


@pytest.mark.parametrize("argument", ARGUMENTS)
def test_every_argument_of_an_instance(argument: str) -> None:
    for value in ODD:
        try:
            problem = instance(**{"durations": TWO, argument: value})
        except ScheduleError:
            continue
        for policy in ("auto", "random"):
            scheduled(problem, policy, 0, 0.001)


def test_every_argument_of_schedule() -> None:
    for value in ODD:
        scheduled(value, seconds=0.001)
        scheduled(TWO, policy=value, seconds=0.001)
        scheduled(TWO, seed=value, seconds=0.001)
        scheduled(TWO, disturbances=value, seconds=0.001)
        scheduled(TWO, seconds=0.001, disturbances=Disturbances(durations=value))
        scheduled(TWO, seconds=0.001, disturbances=Disturbances(outages=value))
        scheduled(TWO, seconds=0.001, disturbances=Disturbances(halving=value))
        with pytest.raises(ScheduleError, match="of an instance"):
            lower_bound(value)


@pytest.mark.parametrize("value", ["1", True, None, nan, inf, -1.0, 1e308, 10**400, [1.0], 1j])
def test_seconds_that_are_none_are_named(value: Any) -> None:
    for call in (lambda: schedule(TWO, seconds=value), lambda: joint([[[1.0]]], [1], budget=value)):
        with pytest.raises(ScheduleError, match=r"(seconds|budget) is .*; it must be a finite number"):
            call()


def test_every_field_of_an_outage() -> None:
    for value in ODD:
        for outage in (Outage(value, 1.0, 2.0), Outage(0, value, 9.0), Outage(0, 1.0, value)):
            scheduled(
                instance(TWO, np.ones((2, 2))), seconds=0.001, disturbances=Disturbances(outages=[outage])
            )


def test_every_field_of_a_halving() -> None:
    good = Rungs(rungs=[1, 2], losses=[0.1, 0.2])
    for value in ODD:
        for field in ("rungs", "losses", "reduction_factor", "rule"):
            halving = replace(good, **{field: value})
            scheduled(TWO, seconds=0.001, disturbances=Disturbances(halving=halving))
        scheduled(TWO, seconds=0.001, disturbances=Disturbances(halving=replace(good, rungs=[1, value])))


def test_every_argument_of_joint() -> None:
    seconds, devices = np.array([[[4.0, 3.0]], [[2.0, inf]]]), [2]
    for value in ODD:
        for arguments in (
            {"seconds": value},
            {"seconds": [[[value, value]]]},
            {"devices": value},
            {"devices": [value]},
            {"seed": value},
            {"policy": value},
        ):
            words: dict[str, Any] = {"seconds": seconds, "devices": devices, "budget": 0.001, **arguments}
            try:
                found = joint(**words)
            except ScheduleError:
                continue
            judge_joint(np.asarray(words["seconds"], float), np.asarray(words["devices"]).tolist(), found)


@settings(max_examples=60)
@given(st.data())
def test_numbers_of_every_size(data: st.DataObject) -> None:
    """From far below a nanosecond to thousands of years, side by side."""

    def many(*shape: int) -> Any:
        count = int(np.prod(shape))
        return np.reshape(data.draw(st.lists(sizes, min_size=count, max_size=count)), shape)

    configs, nodes = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    try:
        problem = instance(
            many(configs, nodes),
            data.draw(st.sampled_from([None, np.ones((nodes, nodes))])),
            sizes=many(nodes),
            hop=many(configs),
            fetch=data.draw(st.sampled_from([inf, 0.0, 1e12])),
            node_ready=many(nodes),
            config_ready=many(configs),
        )
    except ScheduleError:
        return
    scheduled(problem, data.draw(st.sampled_from(sorted(POLICIES.keys() - {"exact"}))), 0, 0.001)


times = st.sampled_from([0.0, 1.0, 2.0, 2.5, 3.0, 4.0, 7.0, 1e9, inf])


@settings(max_examples=80)
@given(st.lists(st.tuples(st.integers(0, 2), times, times), max_size=6), st.sampled_from(["auto", "random"]))
@example([(0, 1.0, 3.0), (0, 2.0, 7.0)], "auto")  # overlapping
@example([(0, 1.0, 7.0), (0, 2.0, 3.0)], "auto")  # one in the other
@example([(0, 1.0, 3.0), (0, 1.0, 3.0)], "auto")  # twice the same
@example([(0, 1.0, 3.0), (0, 3.0, 7.0)], "auto")  # one after the other
@example([(0, 1.0, inf), (0, 3.0, 7.0)], "auto")  # over, and not
@example([(0, 1.0, inf), (1, 1.0, inf), (2, 0.0, inf)], "auto")  # all, for good
@example([(0, 1e9, inf), (1, 1e9, inf), (2, 1e9, inf)], "auto")  # when all is done
def test_outages_in_any_order(spans: Sequence[tuple[int, float, float]], policy: str) -> None:
    problem = instance(np.ones((4, 3)), np.ones((3, 3)))
    scheduled(problem, policy, 0, 0.001, disturbances=Disturbances(outages=[Outage(*span) for span in spans]))


def test_outages_that_overlap_are_one() -> None:
    problem = instance(np.ones((4, 2)), np.ones((2, 2)))
    one = schedule(problem, seconds=0, disturbances=Disturbances(outages=[Outage(0, 1.5, 6.0)]))
    for spans in (
        [(1.5, 4.0), (2.0, 6.0)],
        [(1.5, 6.0), (2.0, 3.0)],
        [(1.5, 3.0), (3.0, 6.0)],
        [(1.5, 6.0)] * 2,
    ):
        found = schedule(
            problem, seconds=0, disturbances=Disturbances(outages=[Outage(0, *span) for span in spans])
        )
        assert found.makespan == one.makespan
        assert found.visits.start.tolist() == one.visits.start.tolist()


def test_too_many_units_are_reported() -> None:
    with pytest.raises(
        ScheduleError, match="epochs come to 1e\\+09 of all configs, over 2 partitions more than"
    ):
        instance(TWO, epochs=[10**9, 0])
