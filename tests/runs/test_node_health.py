"""When a run ends because no node can work."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.core.model.attempts import FailureKind
from cerebro_elastic.core.model.events import Event, NodeQuarantined, NodeReleased
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.state import State, Streak
from cerebro_elastic.errors import RunError
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.start.agents import LocalAgents, NodeHealthCheck
from cerebro_elastic.runs.start.machine import Accelerators


@pytest.fixture
def judge(tmp_path: Path) -> partial[None]:
    """The health check of a run whose own nodes are still to be started."""
    agents = LocalAgents(
        "r",
        RunFolder(tmp_path),
        StoreSettings(endpoints=("127.0.0.1:1",)),
        ["a", "b"],
        ranks=1,
        accelerators=Accelerators(),
        grace=1.0,
        since=0,
        say=lambda _text: None,
    )
    return partial(NodeHealthCheck(), agents)


def state(kinds: dict[str, FailureKind | None]) -> State:
    """Registered nodes, with the trouble that they have."""
    streaks = {n: Streak(1, 7, kind, f"{n} is full") for n, kind in kinds.items() if kind}
    return State(nodes={n: Node(n, "host") for n in kinds}, streaks=streaks)


def set_aside(*names: str) -> Sequence[Event]:
    return [NodeQuarantined(9, name, "why", 7, 60.0) for name in names]


DISK, BUG = FailureKind.DISK_FULL, FailureKind.EXCEPTION


def test_the_run_ends_if_no_node_can_work(judge: partial[None]) -> None:
    judge([*set_aside("a")], state({"a": DISK, "b": None}))
    with pytest.raises(RunError, match=r"(?s)no node can work:\n  a: a is full\n  b: b is full\n.*goes on"):
        judge([*set_aside("b")], state({"a": DISK, "b": FailureKind.STORAGE}))


@pytest.mark.parametrize(
    ("events", "kinds"),
    [
        (set_aside("a"), {"a": DISK, "b": None}),
        (set_aside("a", "b"), {"a": DISK, "b": BUG}),
        ([*set_aside("a"), NodeReleased(10, "a"), *set_aside("b")], {"a": DISK, "b": DISK}),
        (set_aside("a", "b"), {}),
        ([], {"a": DISK, "b": DISK}),
    ],
    ids=["one of two", "for the units' failures", "one is forgiven", "nobody is there", "from before"],
)
def test_the_run_goes_on_while_a_node_may_work(
    judge: partial[None], events: Sequence[Event], kinds: dict[str, FailureKind | None]
) -> None:
    for event in events:
        judge([event], state(kinds))
    judge([], state(kinds))
