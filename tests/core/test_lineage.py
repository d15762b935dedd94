"""Configs that stop, continue, and begin with another's checkpoint: which events are possible, and their
effects."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cerebro_elastic.core.history.derived import derive
from cerebro_elastic.core.history.lineage import born, history
from cerebro_elastic.core.history.machine import fold
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.configs import BY_HAND, Config, Parent, Status
from cerebro_elastic.core.model.events import ConfigCreated, ConfigEnded, ConfigResumed, Event
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import Point, State
from cerebro_elastic.core.model.units import CheckpointRef, PartialUnit, Phase
from cerebro_elastic.errors import IllegalEvent
from support.builders import visit
from support.histories import child

PLAN = Plan("r", partitions=2, epochs=2)
ONE, TWO = CheckpointRef("u/1", "1", 1), CheckpointRef("u/2", "2", 1)
GROWN = Config("c0000", {"lr": 1.0}, epoch=1, visited=(1,), head=ONE, metrics={"loss": 3.0}, revision=5)


def state(*configs: Config) -> State:
    return State(plan=PLAN, configs={config.id: config for config in configs}, revision=9)


def stopped(reason: str = "why", **more: object) -> Config:
    return replace(GROWN, status=Status.STOPPED, reason=reason, **more)  # type: ignore[arg-type]


def test_a_child_begins_where_its_parent_stands_with_nothing_of_its_own() -> None:
    young = child(GROWN, "c0001", {"lr": 2.0}, {"member": 1})
    assert (young.head, young.epoch, young.visited, young.metrics) == (ONE, 1, (1,), {})
    after = fold(state(GROWN), ConfigCreated(10, young))
    assert after.configs["c0001"] == replace(young, revision=10)
    assert born(replace(young, epoch=2, visited=(), head=TWO, metrics={"loss": 1.0})) == young
    partial_unit = child(replace(GROWN, partial_unit=PartialUnit(0, 3)), "c0001", {}, {})
    assert partial_unit.partial_unit == PartialUnit(0, 3)
    assert child(Config("c0000", {}), "c0001", {}, {}).parent is None, "there is nothing to begin with"


def test_the_child_of_an_untrained_child_shares_the_owners_checkpoint() -> None:
    young = child(GROWN, "c0001", {}, {})
    grandchild = child(young, "c0002", {}, {})
    assert grandchild.parent == Parent("c0001", ONE, 1, "c0000", (1,), hparams={"lr": 1.0})
    grown = replace(young, head=TWO)
    assert child(grown, "c0002", {}, {}).parent == Parent("c0001", TWO, 1, "c0001", (1,))


YOUNG = child(GROWN, "c0001", {}, {})
IMPOSSIBLE: dict[str, Event] = {
    "a parent that is not there": ConfigCreated(10, child(replace(GROWN, id="c0007"), "c0001", {}, {})),
    "a parent that has moved on": ConfigCreated(10, child(replace(GROWN, head=TWO), "c0001", {}, {})),
    "not where the parent was": ConfigCreated(10, replace(YOUNG, epoch=0)),
    "metrics at birth": ConfigCreated(10, replace(YOUNG, metrics={"loss": 3.0})),
    "a head without a parent": ConfigCreated(10, Config("c0001", {}, head=ONE)),
    "a live config resumed": ConfigResumed(10, "c0000", "why"),
    "a failed config resumed": ConfigResumed(10, "c0002", "why"),
    "stopped twice by the search": ConfigEnded(10, "c0003", Status.STOPPED, "why"),
    "stopped twice by hand": ConfigEnded(10, "c0004", Status.STOPPED, "why", by_hand=True),
    "nothing left to do": ConfigCreated(10, child(replace(GROWN, id="c0005", epoch=2), "c0006", {}, {})),
}


@pytest.mark.parametrize("why", IMPOSSIBLE)
def test_an_impossible_event_raises(why: str) -> None:
    others = [
        replace(GROWN, id="c0002", status=Status.FAILED),
        replace(stopped(), id="c0003"),
        replace(stopped(by_hand=True), id="c0004"),
        replace(GROWN, id="c0005", epoch=2, status=Status.FINISHED),
    ]
    with pytest.raises(IllegalEvent):
        fold(state(GROWN, *others), IMPOSSIBLE[why])


def test_a_checkpoint_from_outside_needs_no_parent_here() -> None:
    edge = Parent("", ONE, 1, "")
    config = born(Config("c0001", {}, parent=edge))
    begins_there = replace(state(), plan=replace(PLAN, start=edge))
    assert fold(begins_there, ConfigCreated(10, config)).configs["c0001"].head == ONE
    with pytest.raises(IllegalEvent):
        fold(state(), ConfigCreated(10, config))


def step(config: str, epoch: int, partition: int, k: int, to: str, whole: bool = True) -> Visit:
    output = CheckpointRef(to, to, 1)
    return visit(
        config, epoch, partition, index_in_epoch=k, output=output, metrics={"loss": 1.0}, whole=whole
    )


def test_the_visits_that_led_to_a_config_are_its_ancestors_first() -> None:
    eldest = Config("c0000", {}, epoch=1, head=CheckpointRef("b", "b", 1))
    second = child(eldest, "c0001", {"lr": 2.0}, {})
    visits = {
        "c0000": [step("c0000", 0, 1, 0, "a"), step("c0000", 0, 0, 1, "b"), step("c0000", 1, 1, 0, "x")],
        "c0001": [step("c0001", 1, 0, 0, "d")],
    }
    third = child(replace(second, visited=(0,), head=CheckpointRef("d", "d", 1)), "c0002", {}, BY_HAND)
    configs = {config.id: config for config in (eldest, second, third)}
    steps = history("c0002", configs, {**visits, "c0002": [step("c0002", 1, 1, 1, "e")]}, PLAN)
    assert [v.output.url for _, v in steps] == ["a", "b", "d", "e"]
    assert [(at.id, at.epoch, at.visited) for at, _ in steps] == [
        ("c0000", 0, ()),
        ("c0000", 0, (1,)),
        ("c0001", 1, ()),
        ("c0002", 1, (0,)),
    ]


def test_curves_have_points_for_units_and_epochs() -> None:
    plan = replace(PLAN, evaluations=1)
    evaluation = step("c0000", 0, 0, 2, "b")
    evaluation = replace(
        evaluation, unit=replace(evaluation.unit, phase=Phase.EVALUATE), metrics={"val": 5.0}, started=100.0
    )
    log = [
        step("c0000", 0, 1, 0, "a", whole=False),
        step("c0000", 0, 1, 1, "a"),
        step("c0000", 0, 0, 2, "b"),
    ]
    state = derive(State(plan, {"c0000": Config("c0000", {})}), [*log, evaluation], [])
    curves, usage = state.curves, state.usage
    loss = {"loss": 1.0}
    both = {"loss": 1.0, "val": 5.0}
    first, second = log[1].output, log[2].output
    assert curves["c0000"] == (
        Point(1, 0, loss, checkpoint=first),
        Point(2, 0, loss, checkpoint=second),
        Point(2, 1, both, ends=True, checkpoint=evaluation.output),
    )
    assert (usage.units, usage.seconds, usage.elapsed) == (2, 4.0, 101.0)
