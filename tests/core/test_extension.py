"""An ended run is extended: which extensions are possible, which configs continue, and which invariants catch
a wrong history."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cerebro_elastic.core.decisions.moment import used_nodes
from cerebro_elastic.core.history.machine import fold
from cerebro_elastic.core.invariants import check
from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.events import ConfigResumed, RunEnded, RunExtended, UnitAssigned
from cerebro_elastic.core.model.run import Extension, Plan, Spec, changed, specs_of
from cerebro_elastic.core.model.units import Unit
from cerebro_elastic.errors import IllegalEvent
from cerebro_elastic.scheduling.longest_remaining import LongestRemaining
from support.world import World

POLICY = LongestRemaining()


def ended(configs: int = 2) -> World:
    """A run of two partitions and one epoch that has come to its end."""
    world = World(Plan("r", 2, 1), configs, POLICY)
    assert world.finish(["a"], 60)
    return world


def test_a_node_with_the_plan_from_before_the_extension_gets_no_unit() -> None:
    world = ended()
    world.extend(1, 0)
    state = world.ledger.state()
    assert state.plan is not None
    assert list(state.nodes) == ["a"]
    assert used_nodes(state, state.plan) == []
    revision = state.revision
    for config in list(state.configs):
        revision += 1
        state = fold(state, ConfigResumed(revision, config, "", extension=1))
    live = state.configs["c0000"]
    attempt = Attempt(Unit("c0000", 1, 0), "a", state.nodes["a"].registration, live.revision, live.head)
    with pytest.raises(IllegalEvent, match="plan from before the extension"):
        fold(state, UnitAssigned(revision + 1, attempt))
    assigned = UnitAssigned(revision + 1, attempt)
    assert "fencing" in {violation.invariant for violation in check([*world.trace(), assigned])}
    world.join("a")
    state = world.ledger.state()
    assert [node.name for node in used_nodes(state, world.plan)] == ["a"]


def test_a_config_that_should_continue_and_does_not_breaks_completeness() -> None:
    world = ended()
    world.extend(1, 0)
    events = world.trace()
    found = check([*events, RunEnded(events[-1].revision + 1, "finished")])
    assert [violation.invariant for violation in found] == ["completeness"] * 2
    assert "has completed 1 epochs of 2" in found[0].story


IMPOSSIBLE: dict[str, dict[str, object]] = {
    "fewer epochs": {"epochs": 0},
    "the second without a first": {"number": 2},
    "from another epoch": {"configs": {"c0000": 0}},
    "nothing left to do": {"epochs": 1},
    "a config left out": {"others": ()},
    "a config that is not there": {"others": ("c0001", "c9")},
}


def test_only_an_ended_run_is_extended_by_what_is_possible_and_each_config_resumes_once() -> None:
    state = ended().ledger.state()
    extension = Extension(1, 2, {"c0000": 1}, (), ("c0001",), 1)
    for fields in IMPOSSIBLE.values():
        with pytest.raises(IllegalEvent):
            fold(state, RunExtended(state.revision + 1, replace(extension, **fields)))  # type: ignore[arg-type]
    after = fold(state, RunExtended(state.revision + 1, extension))
    with pytest.raises(IllegalEvent, match="has not ended"):
        fold(after, RunExtended(state.revision + 2, replace(extension, number=2)))
    on = fold(after, ConfigResumed(state.revision + 2, "c0000", "", extension=1))
    for config in ("c0000", "c0001"):
        with pytest.raises(IllegalEvent, match="does not resume"):
            fold(on, ConfigResumed(state.revision + 3, config, "", extension=1))


def spec(epochs: int, *extensions: Extension) -> Spec:
    return Spec(Plan("r", 2, epochs), {"epochs": epochs}, f"d{epochs}", "", "", "", {}, "", "", extensions)


def test_the_specs_of_before_follow_from_the_last_one() -> None:
    first = Extension(1, 4, {"c0": 2}, (), ("c1",), 2, {"epochs": 2, "search.num": None}, "d2")
    second = Extension(2, 6, {"c1": 2, "c2": 4}, (), ("c0",), 4, {"epochs": 4}, "d4")
    last = replace(spec(6, first, second), recipe={"epochs": 6, "search": {"num": 9, "method": "random"}})
    before, between, now = specs_of(last)
    assert (before.plan.epochs, before.recipe, before.recipe_digest, before.extensions) == (
        2,
        {"epochs": 2, "search": {"method": "random"}},
        "d2",
        (),
    )
    assert (between.plan.epochs, between.recipe_digest, between.extensions) == (4, "d4", (first,))
    assert now == last
    assert (
        changed(before.recipe, {"epochs": 4, "search": {"num": 9, "method": "random"}}) == first.recipe_before
    )


def test_a_visit_is_repeated_with_the_epochs_that_its_config_had() -> None:
    first = Extension(1, 4, {"c0": 2}, (), ("c1",), 2)
    second = Extension(2, 6, {"c1": 2, "c2": 4}, (), ("c0",), 4)
    extended = spec(6, first, second)
    assert [extended.epochs_of("c0", epoch) for epoch in range(4)] == [2, 2, 4, 4]
    assert [extended.epochs_of("c1", epoch) for epoch in range(6)] == [2, 2, 6, 6, 6, 6]
    assert [extended.epochs_of("c2", epoch) for epoch in range(6)] == [4, 4, 4, 4, 6, 6], (
        "of the first's search"
    )
    assert extended.epochs_of("c3", 0) == 6
    assert spec(2).epochs_of("c0", 1) == 2
