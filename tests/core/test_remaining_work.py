"""What a policy sees of the rest of a run, and when it sees nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from cerebro_elastic.core.decisions.decide import decide
from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.interfaces import RemainingWork, SchedulingContext
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import SpeedFactor, State, Usage
from cerebro_elastic.core.model.units import Strategy, Unit
from cerebro_elastic.scheduling.longest_remaining import LongestRemaining
from support.builders import config, nodes
from support.world import FixedSearch

CONFIGS = (config("c0", visited=(0,)), config("c1", visited=(2,), epoch=3), config("c2"), config("c3"))
PACES = {"a": SpeedFactor(1.0, 5, 20), "b": SpeedFactor(2.0, 5, 20)}


STATE = State(
    plan=Plan("r", partitions=3, epochs=4, max_nodes=2, seed=7),
    configs={c.id: c for c in CONFIGS},
    nodes=nodes("ab"),
    homes={0: ("a",), 1: ("b",), 2: ("a",)},
    timings={"c0": 10.0, "c1": 4.0, "c2": 6.0},
    speed_factors=PACES,
    attempts={"a": Attempt(Unit("c0", 0, 2), "a", 1, 9, expected=10.0, last_visit_ended=100.0)},
    usage=Usage(20, 200.0, began=90.0, until=103.0),
    revision=30,
)


class _Seeing(LongestRemaining):
    """Records what it sees."""

    def __init__(self) -> None:
        self.seen: list[RemainingWork | None] = []

    def choose(self, instance: SchedulingContext) -> Sequence[tuple[str, Unit]]:
        self.seen.append(instance.remaining_work())
        return super().choose(instance)


def shown(state: State) -> list[RemainingWork | None]:
    """What it sees at each call: for a choice, then for a hint."""
    policy = _Seeing()
    decide(state, policy, FixedSearch([]))
    return policy.seen


def seen(state: State = STATE) -> RemainingWork:
    left = shown(state)[0]
    assert left is not None
    return left


def test_the_remaining_work() -> None:
    done = replace(STATE, configs={**STATE.configs, "c9": config("c9", status=Status.STOPPED)})
    assert seen(done) == RemainingWork(
        nodes={"a": 7.0, "b": 0.0},
        configs={"c0": 7.0, "c1": 0.0, "c2": 0.0, "c3": 0.0},
        # Nobody has measured c3: it may be as long as the longest.
        seconds={"c0": [10.0, 20.0], "c1": [4.0, 8.0], "c2": [6.0, 12.0], "c3": [10.0, 20.0]},
        undone={"c0": [1], "c1": [0, 1], "c2": [0, 1, 2], "c3": [0, 1, 2]},
        later={"c0": 3, "c1": 0, "c2": 3, "c3": 3},
        holders=[["a"], ["b"], ["a"]],
        epochs={"c0": 0, "c1": 3, "c2": 0, "c3": 0},
        guessed=["c3"],
    )


@pytest.mark.parametrize(
    ("attempt", "still"),
    [
        ({"last_visit_ended": 60.0}, 0.5),
        ({"last_visit_ended": 104.0}, 10.0),
        ({"last_visit_ended": None}, 0.5),
        ({"expected": None}, 7.0),
        ({"expected": 40.0}, 37.0),
    ],
)
def test_how_long_a_unit_still_takes(attempt: dict[str, float], still: float) -> None:
    """Its expected seconds without those since the visit before it: never none, and never more."""
    known = replace(STATE.attempts["a"], **attempt)  # type: ignore[arg-type]
    assert seen(replace(STATE, attempts={"a": known})).nodes["a"] == still


GANG = Strategy("ddp", ranks=2, nodes=2)


@pytest.mark.parametrize(
    "plan",
    [{"evaluations": 1}, {"strategies": (GANG,)}, {"strategies": (Strategy(), GANG)}],
    ids=["evaluations", "gangs", "trials"],
)
def test_only_units_of_one_node_each_are_predicted(plan: dict[str, object]) -> None:
    assert STATE.plan is not None
    idle = replace(STATE, attempts={}, plan=replace(STATE.plan, **plan))  # type: ignore[arg-type]
    assert shown(idle)[0] is None
