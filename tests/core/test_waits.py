"""What configs without a unit wait for."""

from __future__ import annotations

import pytest

from cerebro_elastic.core.decisions.gangs import Wait, waits
from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Strategy, Unit
from support.builders import config

SINGLE, WIDE, GANG = Strategy(), Strategy("ddp", 2), Strategy("fsdp", 2, 2)


def state(strategies: tuple[Strategy, ...], *nodes: Node, busy: str = "") -> State:
    """Config ``x`` waits; ``y`` is in a unit on each node in ``busy``, ``z`` is stopped."""
    unit = Unit("y", 0, 0)
    return State(
        plan=Plan("r", 1, 1, max_nodes=8, strategies=strategies),
        configs={"x": config("x"), "y": config("y"), "z": config("z", status=Status.STOPPED)},
        nodes={node.name: node for node in nodes},
        homes={0: (nodes[0].name,)} if nodes else {},
        attempts={name: Attempt(unit, name, 1, 1) for name in busy},
    )


def waited(state: State) -> dict[str, Wait]:
    assert state.plan is not None
    return waits(state, state.plan)


A, B, C = (Node(name, "h", registration=1) for name in "abc")
OTHER = Node("g", "h", hardware="A100", registration=1)


def test_a_config_that_needs_one_node_waits_for_its_turn_only() -> None:
    assert waited(state((SINGLE,), A, busy="a")) == {}
    assert waited(state((SINGLE,))) == {}
    assert waited(state((WIDE,), Node("a", "h", ranks=2), busy="a")) == {}


def test_a_config_that_needs_a_gang_waits_for_its_nodes_rather_idle_ones() -> None:
    assert waited(state((GANG,), A, B, C, busy="b")) == {"x": Wait(("a", "c"))}
    assert waited(state((GANG,), A, B, busy="ab"))["x"].nodes == ("a", "b")


@pytest.mark.parametrize(
    ("strategies", "nodes", "lacks"),
    [
        (
            (GANG,),
            (A, OTHER),
            "fsdp x2 over 2 nodes takes 2 nodes of one kind with 1 rank each; "
            "there are: 1 A100 of 1 rank, 1 cpu of 1 rank",
        ),
        ((WIDE,), (A, B), "ddp x2 takes a node of 2 ranks; there are: 2 cpu of 1 rank"),
        ((GANG, WIDE), (A,), "ddp x2 takes a node of 2 ranks; there are: 1 cpu of 1 rank"),
        ((WIDE,), (), "ddp x2 takes a node of 2 ranks; there are: none"),
    ],
)
def test_missing_nodes_are_reported(
    strategies: tuple[Strategy, ...], nodes: tuple[Node, ...], lacks: str
) -> None:
    lacking = waited(state(strategies, *nodes))
    assert lacking == dict.fromkeys(("x", "y"), Wait(lacks=lacks))
