"""Which candidates for a plan are left out, and which one is the best."""

from __future__ import annotations

import pytest

from cerebro_elastic.core.model.units import Strategy
from cerebro_elastic.runs.forecast.plan_candidates import (
    Option,
    PlanCandidate,
    best,
    why_dominated,
    why_skipped,
)

SINGLE, PAIR = Strategy(), Strategy("ddp", 2, 2)


@pytest.mark.parametrize(
    ("candidate", "why"),
    [
        (PlanCandidate(4, 4, SINGLE), None),
        (PlanCandidate(2, 4, PAIR), None),
        (PlanCandidate(4, 8, SINGLE), "nodes would be idle: 4 partitions for 8 units at a time"),
        (PlanCandidate(8, 8, SINGLE), "nodes would be idle: 6 configs for 8 units at a time"),
        (PlanCandidate(4, 1, PAIR), "ddp x2 over 2 nodes takes 2 nodes"),
        (PlanCandidate(4, 4, Strategy("fsdp", 2)), "fsdp x2: c0003: out of memory"),
    ],
)
def test_useless_candidates_are_skipped_with_a_reason(candidate: PlanCandidate, why: str | None) -> None:
    assert why_skipped(candidate, 6, 1, {Strategy("fsdp", 2): "c0003: out of memory"}) == why


def option(nodes: int, seconds: float, partitions: int = 4) -> Option:
    return Option(PlanCandidate(partitions, nodes, SINGLE), seconds, idle=0.0, gap=0.0)


def test_candidates_neither_faster_nor_cheaper_are_left_out() -> None:
    one, two, four, finer = option(1, 100.0), option(2, 50.0), option(4, 30.0), option(4, 31.0, 8)
    assert why_dominated([one, two, four, finer]) == {
        one.candidate: "neither faster nor cheaper than 2 nodes, 4 partitions, single",
        finer.candidate: "neither faster nor cheaper than 4 nodes, 4 partitions, single",
    }


def test_twice_the_nodes_must_be_worth_it() -> None:
    one = option(1, 100.0)
    assert best([one, option(2, 71.0)]) == one
    assert best([one, option(2, 70.0)]).candidate.nodes == 2
    assert option(2, 1800.0).hours == 1.0
