"""Who is which rank of an attempt, by table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cerebro_elastic.core.model.attempts import Attempt, Member
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.units import Strategy, Unit
from cerebro_elastic.worker.group_rendezvous import RankAssignment, RankIdentity, rank_assignment_of, stale

NODES = {
    "a": Node("a", "host", ranks=2, boot="a's", registration=3),
    "b": Node("b", "host", ranks=1, boot="b's", registration=5),
}
ALL = [("a", 0), ("a", 1), ("b", 0)]


def attempt(lead: str, *others: str, ranks: int) -> Attempt:
    gang = tuple(Member(name, NODES[name].registration) for name in others)
    strategy = Strategy("ddp", ranks, 1 + len(gang))
    return Attempt(Unit("c", 0, 0), lead, NODES[lead].registration, 1, strategy=strategy, gang=gang, token=7)


@pytest.mark.parametrize(
    ("made", "ranks"),
    [
        (attempt("a", ranks=1), [0, None]),
        (attempt("a", ranks=2), [0, 1]),
        (attempt("a", "b", ranks=2), [0, 1, None]),
        (attempt("a", "b", ranks=3), [0, 1, 2]),
        (attempt("b", "a", ranks=3), [1, 2, 0]),
        (attempt("b", "a", ranks=2), [1, None, 0]),
    ],
)
def test_ranks_go_through_the_nodes_the_lead_first(made: Attempt, ranks: list[int | None]) -> None:
    taking_part = [who for who in ALL if who[0] in made.nodes]
    seats = [rank_assignment_of(RankIdentity(node, "", local), made, NODES) for node, local in taking_part]
    assert seats == [None if rank is None else RankAssignment(rank, made.strategy.ranks) for rank in ranks]
    assert [rank_assignment.leads for rank_assignment in seats if rank_assignment] == [
        rank == 0 for rank in ranks if rank is not None
    ]


def test_an_attempt_is_begun_only_as_it_was_made() -> None:
    made, who = attempt("a", "b", ranks=3), RankIdentity("a", "a's")
    assert stale(who, made, NODES) is None
    again = {**NODES, "b": replace(NODES["b"], registration=9)}
    assert stale(who, made, again) == "stale: the node b has registered again"
    assert stale(who, made, {"a": NODES["a"]}) == "stale: the node b has registered again"
    reason = stale(RankIdentity("a", "another's"), made, NODES)
    assert reason is not None
    assert "give each node its own" in reason
