"""A unit that is queued behind the one that its node trains: when it is queued, and how it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from cerebro_elastic.core.decisions.assignment import LONG_HOP, SHORT_SECONDS
from cerebro_elastic.core.decisions.decide import decide
from cerebro_elastic.core.history.machine import fold
from cerebro_elastic.core.model import events as ev
from cerebro_elastic.core.model.attempts import Attempt, FailureKind, Visit
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State, Streak
from cerebro_elastic.core.model.units import Phase, Strategy, Unit
from cerebro_elastic.errors import IllegalEvent
from cerebro_elastic.scheduling.longest_remaining import LongestRemaining
from support.builders import REF, failure, visit
from support.histories import folded
from support.world import FixedSearch

PLAN = Plan("r", partitions=1, epochs=2, max_nodes=2)
CONFIGS = 6
FIRST, QUEUED = 20, 21
"""The tokens of the unit that ``a`` trains, and of the one queued behind it."""


def attempt(config: int, node: str = "a", **fields: object) -> Attempt:
    seconds = SHORT_SECONDS
    new = Attempt(Unit(f"c{config}", 0, 0), node, {"a": 3, "b": 4}[node], 10 + config, expected=seconds)
    return replace(new, **fields)  # type: ignore[arg-type]


BEFORE: Sequence[Event] = [
    ev.RunOpened(2, PLAN),
    ev.NodeJoined(3, Node("a", "h", registration=3)),
    *(ev.ConfigCreated(10 + i, Config(f"c{i}", {})) for i in range(CONFIGS)),
    ev.HomesAssigned(19, {0: ("a",)}),
    ev.UnitAssigned(FIRST, attempt(0)),
]
HISTORY: Sequence[Event] = [
    *BEFORE,
    ev.UnitAssigned(QUEUED, attempt(1, queued_behind=FIRST, second_key=True)),
]


def done(config: int, token: int, **fields: Any) -> Visit:
    return visit(f"c{config}", node="a", attempt=token, **fields)


def given(now: State) -> list[Attempt]:
    search = FixedSearch([{}] * CONFIGS)
    return [a.attempt for a in decide(now, LongestRemaining(), search) if isinstance(a, ev.UnitAssigned)]


def tokens(now: State) -> tuple[int | None, int | None]:
    """The tokens of the unit that ``a`` trains, and of the one queued there."""
    training, queued = now.attempts.get("a"), now.queued.get("a")
    return training.token if training else None, queued.token if queued else None


# When?


def test_a_unit_is_queued_behind_a_short_one_while_many_configs_are_free() -> None:
    (queued,) = given(folded(BEFORE))
    assert (queued.node, queued.unit.config) == ("a", "c1")
    assert (queued.queued_behind, queued.second_key) == (FIRST, True)
    after = folded([*BEFORE, ev.UnitAssigned(QUEUED, queued)])
    assert tokens(after) == (FIRST, QUEUED)
    assert after.running("c1") == after.queued["a"]
    assert given(after) == [], "one waits"


@pytest.mark.parametrize(
    "change",
    [
        {"attempts": {"a": attempt(0, expected=SHORT_SECONDS * 1.01)}},
        {"attempts": {"a": attempt(0, expected=None)}},
        {"attempts": {"a": attempt(0, strategy=Strategy("ddp", 2))}},
        {"attempts": {"a": attempt(0, unit=Unit("c0", 0, 0, Phase.PROFILE))}},
        {"streaks": {"a": Streak(1, 9, FailureKind.EXCEPTION, "boom")}},
        {"plan": replace(PLAN, strategies=(Strategy(), Strategy("ddp", 2, 2)))},
        {"nodes": {"a": Node("a", "h", registration=3, drain=30.0)}},
    ],
    ids=["long", "unknown", "ranks", "profile", "fails", "gangs", "leaves"],
)
def test_no_unit_is_queued_behind_these(change: dict[str, object]) -> None:
    assert given(replace(folded(BEFORE), **change)) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(("hop", "queues"), [(0.99 * LONG_HOP, False), (1.01 * LONG_HOP, True)])
def test_a_unit_is_queued_behind_any_unit_if_hops_are_long(hop: float, queues: bool) -> None:
    """Then its state is loaded meanwhile, even if few configs are left to choose from; so no other is."""
    seconds = 10 * SHORT_SECONDS
    now = folded([*BEFORE[:2], ev.NodeJoined(4, Node("b", "h", registration=4)), *BEFORE[2:]])
    trained = {name: replace(config, head=REF) for name, config in now.configs.items()}
    busy = {"a": attempt(0, expected=seconds), "b": attempt(5, "b", expected=None)}
    now = replace(now, homes={0: ("a", "b")}, configs=trained, attempts=busy)
    now = replace(now, hops=(hop * seconds, 0.0, hop * seconds), timings=dict.fromkeys(trained, seconds))
    assert [queued.unit.config for queued in given(now)] == ["c1"] * queues

    (begun,) = given(replace(now, attempts={"b": busy["b"]}))
    assert begun.prefetch is not None
    assert begun.prefetch.input == (None if queues else REF)


# What becomes of it?


@pytest.mark.parametrize(
    ("end", "left"),
    [
        (ev.UnitCommitted(22, done(0, FIRST)), (QUEUED, None)),
        (ev.UnitFailed(22, failure(Unit("c0", 0, 0), node="a", attempt=FIRST)), (QUEUED, None)),
        (ev.UnitTrained(22, "a", FIRST), (QUEUED, None)),
        (ev.UnitWithdrawn(22, "a", FIRST), (QUEUED, None)),
        (ev.UnitCommitted(22, done(1, QUEUED)), (FIRST, None)),
        (ev.UnitTrained(22, "a", QUEUED), (FIRST, None)),
        (ev.UnitWithdrawn(22, "a", QUEUED), (FIRST, None)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_queued_unit_is_trained_once_the_unit_ahead_is_over_and_may_end_first(
    end: Event, left: tuple[int | None, int | None]
) -> None:
    """What is ahead may be slow to be saved, or it may have been refused and not withdrawn yet."""
    assert tokens(folded([*HISTORY, end])) == left


@pytest.mark.parametrize(
    "wrong",
    [
        attempt(1, queued_behind=FIRST),
        attempt(1, second_key=True),
        attempt(1, queued_behind=FIRST - 1, second_key=True),
        attempt(1, queued_behind=FIRST, second_key=True, strategy=Strategy("ddp", 2)),
        attempt(0, queued_behind=FIRST, second_key=True),
    ],
    ids=["key in use", "behind nothing", "behind another", "ranks", "config in a unit"],
)
def test_a_wrongly_queued_attempt_is_refused(wrong: Attempt) -> None:
    with pytest.raises(IllegalEvent):
        fold(folded(BEFORE), ev.UnitAssigned(QUEUED, wrong))


@pytest.mark.parametrize("behind", [0, FIRST, QUEUED])
def test_a_node_gets_no_third_attempt(behind: int) -> None:
    with pytest.raises(IllegalEvent):
        fold(folded(HISTORY), ev.UnitAssigned(22, attempt(2, queued_behind=behind, second_key=behind > 0)))
