"""The machine's table, row by row: possible events, and that impossible ones change nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cerebro_elastic.core.history.machine import fold
from cerebro_elastic.core.history.progress import advance, next_units, position, units_left
from cerebro_elastic.core.invariants import check
from cerebro_elastic.core.model import events as ev
from cerebro_elastic.core.model.attempts import Attempt, Failure, FailureKind, Member, ProfileResult, Visit
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State, Streak
from cerebro_elastic.core.model.units import CheckpointRef, Measurement, PartialUnit, Phase, Strategy, Unit
from cerebro_elastic.errors import IllegalEvent
from support import builders
from support.builders import REF
from support.histories import folded

PLAN = Plan("r", partitions=2, epochs=2)
UNIT = Unit("c0", 0, 1)
HISTORY: list[Event] = [
    ev.RunOpened(2, PLAN),
    ev.NodeJoined(3, Node("a", "h", registration=3)),
    ev.NodeJoined(4, Node("b", "h", registration=4)),
    ev.ConfigCreated(5, Config("c0", {})),
    ev.ConfigCreated(6, Config("c1", {})),
    ev.HomesAssigned(7, {0: ("a",), 1: ("b", "a")}),
    ev.UnitAssigned(8, Attempt(UNIT, "b", registration=4, config_revision=5)),
]


def visit(unit: Unit = UNIT, **fields: Any) -> Visit:
    return builders.visit(unit=unit, metrics={"m": 1.0}, **{"node": "b", "attempt": 8, **fields})


PART = visit(batches=5, whole=False)


def failed(token: int = 8, **fields: Any) -> Failure:
    return builders.failure(UNIT, attempt=token, **fields)


def test_a_unit_left_before_its_end_is_the_configs_only_next_one() -> None:
    config = folded([*HISTORY, ev.UnitCommitted(9, PART)]).configs["c0"]
    assert (config.partial_unit, config.visited, config.head, config.pending) == (
        PartialUnit(1, 5),
        (),
        REF,
        {},
    )
    assert next_units(config, PLAN) == (UNIT,)
    assert position(config) == 1
    assert units_left(config, PLAN) == 4
    rest = visit(index_in_epoch=1, skip=5, batches=2)
    config = advance(config, rest, PLAN)
    assert (config.partial_unit, config.visited, config.parts) == (None, (1,), 1)
    assert position(config) == 2
    assert units_left(config, PLAN) == 3
    config = advance(config, visit(Unit("c0", 0, 0), index_in_epoch=2), PLAN)
    assert (config.epoch, config.parts, position(config)) == (1, 0, 0)


def test_failures_in_a_row_make_a_streak_which_a_commit_ends() -> None:
    failing = folded([*HISTORY, ev.UnitFailed(9, failed())])
    assert failing.streaks == {"b": Streak(1, 8, FailureKind.CRASH, "boom")}
    quarantined = fold(failing, ev.NodeQuarantined(10, "b", "it fails", 8, 60.0))
    assert (quarantined.quarantined, quarantined.quarantined_for) == ({"b": "it fails"}, {"b": 8})
    forgiven = fold(quarantined, ev.NodeReleased(11, "b"))
    assert (forgiven.quarantined, forgiven.quarantined_for) == ({}, {"b": 8})
    again = fold(forgiven, ev.UnitAssigned(12, Attempt(UNIT, "b", registration=4, config_revision=9)))
    assert fold(again, ev.UnitFailed(13, failed(12))).streaks["b"].failures == 2
    well = fold(again, ev.UnitCommitted(13, visit(attempt=12)))
    assert (well.streaks, well.quarantined_for) == ({}, {})


SAVING = [*HISTORY, ev.UnitTrained(9, "b", 8)]


NEXT = Attempt(Unit("c1", 0, 1), "b", registration=4, config_revision=6)


def test_a_trained_unit_is_saved_while_its_node_trains_the_next() -> None:
    saving = folded(SAVING)
    assert (saving.attempts, saving.saving["b"].trained) == ({}, 9)
    assert saving.running("c0") == saving.saving["b"], "the config stays busy"
    both = fold(saving, ev.UnitAssigned(10, NEXT))
    assert both.underway() == [both.saving["b"], both.attempts["b"]], "in the order of their tokens"
    ends = [ev.UnitCommitted(11, visit()), ev.UnitFailed(11, failed()), ev.UnitWithdrawn(11, "b", 8)]
    for end in ends:
        after = fold(both, end)
        assert (after.saving, after.attempts) == ({}, both.attempts), end
    with pytest.raises(IllegalEvent, match="it saves"):
        fold(both, ev.UnitTrained(11, "b", 10))
    assert fold(fold(both, ends[0]), ev.UnitTrained(12, "b", 10)).saving["b"].token == 10
    with pytest.raises(IllegalEvent, match="isolation"):
        fold(saving, ev.UnitAssigned(10, Attempt(Unit("c0", 0, 0), "a", 3, 5)))


def test_a_streak_goes_by_the_order_of_attempts_not_of_their_ends() -> None:
    both = folded([*SAVING, ev.UnitAssigned(10, NEXT)])
    newer = replace(failed(10), unit=NEXT.unit, kind=FailureKind.STORAGE)
    streak = Streak(1, 10, FailureKind.STORAGE, "boom")
    assert fold(fold(both, ev.UnitFailed(11, newer)), ev.UnitCommitted(12, visit())).streaks == {"b": streak}
    failing = fold(fold(both, ev.UnitFailed(11, newer)), ev.UnitFailed(12, failed()))
    assert failing.streaks == {"b": replace(streak, failures=2)}
    done = fold(both, ev.UnitCommitted(11, visit(NEXT.unit, attempt=10)))
    assert fold(done, ev.UnitFailed(12, failed())).streaks == {}, "what it did since went well"


GANG = Strategy("ddp", 2, 2)
CHOOSING = replace(PLAN, strategies=(Strategy(), GANG))
TOGETHER = Attempt(UNIT, "b", 4, 5, strategy=GANG, gang=(Member("a", 3),), hardware="A100")
PROFILE = replace(UNIT, phase=Phase.PROFILE)
GANG_HISTORY = [ev.RunOpened(2, CHOOSING), *HISTORY[1:-1], ev.UnitAssigned(8, TOGETHER)]
TRIAL_HISTORY = [*GANG_HISTORY[:-1], ev.UnitAssigned(8, replace(TOGETHER, unit=PROFILE))]


def test_a_gang_takes_its_nodes_and_gives_them_back_together() -> None:
    working = folded(GANG_HISTORY)
    assert working.attempts["a"] == working.attempts["b"] == replace(TOGETHER, token=8)
    assert working.underway() == [working.attempts["b"]]
    together = visit(strategy=GANG, gang=("a",), hardware="A100")
    ends = [
        ev.UnitCommitted(9, together),
        ev.UnitFailed(9, replace(failed(), node="a")),
        ev.UnitWithdrawn(9, "b", 8),
    ]
    for end in ends:
        assert fold(working, end).attempts == {}, end
    assert fold(working, ends[1]).streaks.keys() == {"a"}, "the node that failed is to blame"
    failing = fold(fold(working, ends[1]), ev.UnitAssigned(10, replace(TOGETHER, config_revision=9)))
    assert fold(failing, ev.UnitCommitted(11, replace(together, attempt=10))).streaks == {}


def test_a_profile_ends_as_a_profile_and_a_unit_as_a_unit() -> None:
    measured = ProfileResult(PROFILE, GANG, "A100", "b", 8)
    impossible: list[tuple[list[Event], Event]] = [
        (GANG_HISTORY, ev.ProfileDone(9, replace(measured, unit=UNIT))),
        (TRIAL_HISTORY, ev.ProfileDone(9, replace(measured, strategy=Strategy()))),
        (TRIAL_HISTORY, ev.ProfileDone(9, replace(measured, hardware="H100"))),
        (TRIAL_HISTORY, ev.ProfileDone(9, replace(measured, attempt=7))),
        (TRIAL_HISTORY, ev.UnitCommitted(9, visit(PROFILE, strategy=GANG, gang=("a",)))),
        (GANG_HISTORY, ev.UnitCommitted(9, visit())),
        (GANG_HISTORY, ev.UnitCommitted(9, visit(strategy=GANG))),
        (GANG_HISTORY[:-1], ev.UnitAssigned(8, replace(TOGETHER, gang=()))),
        (GANG_HISTORY[:-1], ev.UnitAssigned(8, replace(TOGETHER, gang=(Member("b", 4),)))),
        (GANG_HISTORY[:-1], ev.UnitAssigned(8, replace(TOGETHER, gang=(Member("a", 2),)))),
        (GANG_HISTORY[:-1], ev.UnitAssigned(8, replace(TOGETHER, strategy=Strategy("fsdp", 2, 2)))),
        (HISTORY, ev.UnitAssigned(9, Attempt(Unit("c1", 0, 0), "a", 3, 6, strategy=GANG))),
        (GANG_HISTORY, ev.UnitTrained(9, "b", 8)),
        ([*GANG_HISTORY[:-1], ev.UnitAssigned(8, Attempt(PROFILE, "b", 4, 5))], ev.UnitTrained(9, "b", 8)),
    ]
    for history, event in impossible:
        with pytest.raises(IllegalEvent):
            fold(folded(history), event)


IMPOSSIBLE: dict[str, Event] = {
    "opened twice": ev.RunOpened(9, PLAN),
    "a config's id taken": ev.ConfigCreated(9, Config("c0", {})),
    "an end that is no end": ev.ConfigEnded(9, "c0", Status.FINISHED, "why"),
    "a node that is there": ev.NodeJoined(9, Node("a", "h", registration=9)),
    "an unknown partition": ev.HomesAssigned(9, {0: ("a",)}),
    "a partition twice on a node": ev.HomesAssigned(9, {0: ("a",), 1: ("b", "b")}),
    "a busy node": ev.UnitAssigned(9, Attempt(Unit("c1", 0, 1), "b", 4, 6)),
    "a busy config": ev.UnitAssigned(9, Attempt(Unit("c0", 0, 0), "a", 3, 5)),
    "an old registration": ev.UnitAssigned(9, Attempt(Unit("c1", 0, 0), "a", 2, 6)),
    "an old config revision": ev.UnitAssigned(9, Attempt(Unit("c1", 0, 0), "a", 3, 5)),
    "an epoch to come": ev.UnitAssigned(9, Attempt(Unit("c1", 1, 0), "a", 3, 6)),
    "an evaluation that is not due": ev.UnitAssigned(9, Attempt(Unit("c1", 0, 0, Phase.EVALUATE), "a", 3, 6)),
    "a commit of nobody": ev.UnitCommitted(9, visit(node="a")),
    "a commit of an old attempt": ev.UnitCommitted(9, visit(attempt=7)),
    "a commit of another unit": ev.UnitCommitted(9, visit(unit=Unit("c0", 0, 0))),
    "a commit from another input": ev.UnitCommitted(9, visit(input=REF)),
    "a failure of an old attempt": ev.UnitFailed(9, failed(token=7)),
    "a part without a batch": ev.UnitCommitted(9, visit(batches=0, whole=False)),
    "a part that ends its config": ev.UnitCommitted(9, replace(PART, done=True)),
    "an assignment that skips": ev.UnitAssigned(9, Attempt(Unit("c1", 0, 0), "a", 3, 6, skip=5)),
    "draining a node that is not there": ev.NodeDraining(9, "z", 1.0),
    "a recovery from nothing": ev.NodeRecovered(9, "a"),
    "ready before it was starting": ev.NodeReady(9, "a"),
    "setting aside a busy node": ev.NodeQuarantined(9, "b", "why", 8, 60.0),
    "setting aside a node that did not fail": ev.NodeQuarantined(9, "a", "why", 8, 60.0),
    "an order while nobody leads": ev.Ordered(9, (("b", "c1", 0, 0),)),
    "a state of another run": ev.StateRead(9, State(plan=Plan("other", 2, 2))),
    "trained by nobody": ev.UnitTrained(9, "a", 8),
    "a withdrawal of an old attempt": ev.UnitWithdrawn(9, "b", 7),
    "an end with live configs": ev.RunEnded(9, "finished"),
}


@pytest.mark.parametrize("why", IMPOSSIBLE)
def test_an_impossible_event_raises_and_changes_nothing(why: str) -> None:
    before = folded(HISTORY)
    same = folded(HISTORY)
    with pytest.raises(IllegalEvent):
        fold(before, IMPOSSIBLE[why])
    assert before == same


@pytest.mark.parametrize("evaluations", [0, 2])
def test_the_task_may_end_a_config_at_an_epochs_end(evaluations: int) -> None:
    plan = replace(PLAN, evaluations=evaluations)
    config = advance(Config("c0", {}), visit(Unit("c0", 0, 1)), plan)
    config = advance(config, visit(Unit("c0", 0, 0), done=True), plan)
    for partition in range(evaluations):
        assert config.status is Status.LIVE
        config = advance(config, visit(Unit("c0", 0, partition, Phase.EVALUATE)), plan)
    assert (config.status, config.epoch, config.done) == (Status.FINISHED, 1, False)


def measured(number: int = 0, epoch: int = 1, url: str = "u0") -> Measurement:
    ref = CheckpointRef(url, "d", 1)
    return Measurement(number, "c0", epoch, ref, {"test_m": 0.5}, 9, 3.0, {"test_m": (0.4, 0.6)}, "Ann")


def finished() -> list[Event]:
    """A run of one config and one epoch, to its end: its model is ``u0``."""
    unit, plan = Unit("c0", 0, 0), replace(PLAN, partitions=1, epochs=1)
    attempt = Attempt(unit, "a", registration=3, config_revision=4)
    output = CheckpointRef("u0", "d", 1)
    return [
        ev.RunOpened(2, plan),
        ev.NodeJoined(3, Node("a", "h", registration=3)),
        ev.ConfigCreated(4, Config("c0", {})),
        ev.HomesAssigned(5, {0: ("a",)}),
        ev.UnitAssigned(6, attempt),
        ev.UnitCommitted(7, visit(unit, node="a", attempt=6, output=output)),
        ev.RunEnded(8, "finished"),
    ]


def test_a_model_is_measured_on_the_test_set_when_the_run_has_ended() -> None:
    events = [*finished(), ev.ConfigMeasured(9, measured()), ev.ConfigMeasured(10, measured(1))]
    after = folded(events)
    assert after.measured == (measured(), measured(1))
    assert replace(after, measured=(), revision=8) == folded(finished())
    assert check(events) == []
    for wrong in (measured(1), measured(epoch=2), measured(url="other")):
        with pytest.raises(IllegalEvent):
            fold(folded(finished()), ev.ConfigMeasured(9, wrong))
    with pytest.raises(IllegalEvent, match="nobody looks at the test set before"):
        fold(folded(finished()[:-1]), ev.ConfigMeasured(9, measured()))


def test_the_invariants_see_a_look_at_the_test_set_that_came_too_early() -> None:
    early = [*finished()[:-1], ev.ConfigMeasured(8, measured()), ev.RunEnded(9, "finished")]
    foreign = [*finished(), ev.ConfigMeasured(9, measured(url="other"))]
    for events, said in ((early, "before the run had ended"), (foreign, "no visit of it has written")):
        (violation,) = check(events)
        assert violation.invariant == "unseen test set"
        assert said in violation.story


def test_evaluations_weigh_in_by_their_samples() -> None:
    plan = replace(PLAN, partitions=1, evaluations=2)
    config = advance(Config("c0", {}), visit(Unit("c0", 0, 0)), plan)
    for partition, (value, samples) in enumerate([(1.0, 30), (0.0, 10)]):
        unit = Unit("c0", 0, partition, Phase.EVALUATE)
        config = advance(config, replace(visit(unit, samples=samples), metrics={"val": value}), plan)
    assert config.epoch == 1
    assert config.metrics == {"m": 1.0, "val": 0.75}


def test_nothing_but_nodes_comes_before_the_run() -> None:
    assert fold(State(), ev.NodeJoined(2, Node("a", "h", registration=2))).nodes
    with pytest.raises(IllegalEvent, match="before the run was opened"):
        fold(State(), ev.ConfigCreated(2, Config("c0", {})))
