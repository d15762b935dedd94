"""The machine's table, row by row: what is possible, and that the rest changes nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cerebro_elastic.core.events import (
    ConfigCreated,
    ConfigEnded,
    Event,
    NodeJoined,
    NodeLeft,
    Placed,
    RunEnded,
    RunOpened,
    UnitAssigned,
    UnitCommitted,
    UnitFailed,
    UnitWithdrawn,
)
from cerebro_elastic.core.machine import fold
from cerebro_elastic.core.progress import advance
from cerebro_elastic.core.state import State
from cerebro_elastic.core.values import (
    Attempt,
    CheckpointRef,
    Config,
    Failure,
    FailureKind,
    Node,
    Phase,
    Plan,
    Status,
    Unit,
    Visit,
)
from cerebro_elastic.errors import IllegalEvent

PLAN = Plan("r", partitions=2, epochs=2)
UNIT = Unit("c0", 0, 1)
REF = CheckpointRef("u", "d", 1)
HISTORY: list[Event] = [
    RunOpened(2, PLAN),
    NodeJoined(3, Node("a", "h", registration=3)),
    NodeJoined(4, Node("b", "h", registration=4)),
    ConfigCreated(5, Config("c0", {})),
    ConfigCreated(6, Config("c1", {})),
    Placed(7, {0: "a", 1: "b"}),
    UnitAssigned(8, Attempt(UNIT, "b", registration=4, config_revision=5)),
]


def visit(unit: Unit = UNIT, node: str = "b", attempt: int = 8, source: CheckpointRef | None = None) -> Visit:
    return Visit(unit, 0, node, attempt, source, REF, 1, 1, 2.0, 0.5, 0.0, {"m": 1.0})


def state(events: list[Event]) -> State:
    result = State()
    for event in events:
        result = fold(result, event)
    return result


def test_a_commit_advances_the_config_and_frees_the_node() -> None:
    after = state([*HISTORY, UnitCommitted(9, visit())])
    config = after.configs["c0"]
    assert (config.visited, config.head, config.revision) == ((1,), REF, 9)
    assert after.attempts == {}
    assert after.timings["c0"] == 2.5


def test_a_lost_node_keeps_its_attempt_until_it_is_withdrawn() -> None:
    lost = state([*HISTORY, NodeLeft(9, "b")])
    assert lost.attempts["b"].token == 8
    assert not lost.stands(lost.attempts["b"])
    assert fold(lost, UnitWithdrawn(10, "b", 8)).attempts == {}


def test_a_failure_is_remembered_and_does_not_advance() -> None:
    failure = Failure(UNIT, "b", 8, FailureKind.EXCEPTION, "boom")
    config = state([*HISTORY, UnitFailed(9, failure)]).configs["c0"]
    assert (config.failures, config.visited, config.revision) == ((failure,), (), 9)


FAILURE = Failure(UNIT, "b", 7, FailureKind.EXCEPTION, "boom")
IMPOSSIBLE: dict[str, Event] = {
    "opened twice": RunOpened(9, PLAN),
    "an old revision": NodeLeft(7, "a"),
    "a config's id taken": ConfigCreated(9, Config("c0", {})),
    "no such config": ConfigEnded(9, "c9", Status.STOPPED, "why"),
    "an end that is no end": ConfigEnded(9, "c0", Status.FINISHED, "why"),
    "a node that is there": NodeJoined(9, Node("a", "h", registration=9)),
    "a node that is not there": NodeLeft(9, "z"),
    "a partition without home": Placed(9, {0: "a"}),
    "a busy node": UnitAssigned(9, Attempt(Unit("c1", 0, 1), "b", 4, 6)),
    "a busy config": UnitAssigned(9, Attempt(Unit("c0", 0, 0), "a", 3, 5)),
    "an old registration": UnitAssigned(9, Attempt(Unit("c1", 0, 0), "a", 2, 6)),
    "an old config revision": UnitAssigned(9, Attempt(Unit("c1", 0, 0), "a", 3, 5)),
    "an epoch to come": UnitAssigned(9, Attempt(Unit("c1", 1, 0), "a", 3, 6)),
    "an evaluation that is not due": UnitAssigned(9, Attempt(Unit("c1", 0, 0, Phase.EVALUATE), "a", 3, 6)),
    "a commit of nobody": UnitCommitted(9, visit(node="a")),
    "a commit of an old attempt": UnitCommitted(9, visit(attempt=7)),
    "a commit of another unit": UnitCommitted(9, visit(unit=Unit("c0", 0, 0))),
    "a commit from another input": UnitCommitted(9, visit(source=REF)),
    "a failure of an old attempt": UnitFailed(9, FAILURE),
    "a withdrawal of an old attempt": UnitWithdrawn(9, "b", 7),
    "an end with live configs": RunEnded(9, "finished"),
}


@pytest.mark.parametrize("why", IMPOSSIBLE)
def test_what_cannot_be_raises_and_changes_nothing(why: str) -> None:
    before = state(HISTORY)
    same = state(HISTORY)
    with pytest.raises(IllegalEvent):
        fold(before, IMPOSSIBLE[why])
    assert before == same


def test_nothing_but_nodes_comes_before_the_run() -> None:
    assert fold(State(), NodeJoined(2, Node("a", "h", registration=2))).nodes
    with pytest.raises(IllegalEvent, match="before the run was opened"):
        fold(State(), ConfigCreated(2, Config("c0", {})))


def test_an_epoch_ends_with_its_last_unit_and_the_run_with_its_last_epoch() -> None:
    config = Config("c0", {})
    for epoch in (0, 1):
        for k, partition in enumerate((1, 0)):
            config = advance(config, replace(visit(Unit("c0", epoch, partition)), k=k), PLAN)
    assert (config.status, config.epoch, config.visited, config.metrics) == (
        Status.FINISHED,
        2,
        (),
        {"m": 1.0},
    )


def test_the_task_may_end_a_config_at_an_epochs_end() -> None:
    config = advance(Config("c0", {}), visit(Unit("c0", 0, 1)), PLAN)
    config = advance(config, replace(visit(Unit("c0", 0, 0)), done=True), PLAN)
    assert (config.status, config.epoch) == (Status.FINISHED, 1)


def test_evaluations_weigh_in_by_their_samples() -> None:
    plan = replace(PLAN, partitions=1, evaluations=2)
    config = advance(Config("c0", {}), visit(Unit("c0", 0, 0)), plan)
    for partition, (value, samples) in enumerate([(1.0, 30), (0.0, 10)]):
        unit = Unit("c0", 0, partition, Phase.EVALUATE)
        config = advance(config, replace(visit(unit), metrics={"val": value}, samples=samples), plan)
    assert config.epoch == 1
    assert config.metrics == {"m": 1.0, "val": 0.75}
