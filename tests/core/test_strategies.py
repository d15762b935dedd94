"""Which strategies are profiled, chosen and refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cerebro_elastic.core.decisions.decide import decide
from cerebro_elastic.core.decisions.next_steps import (
    NextStep,
    expected_seconds,
    infeasible,
    next_steps,
    refusals,
)
from cerebro_elastic.core.history.estimates import Profiles, add_profile, refine
from cerebro_elastic.core.model.attempts import Failure, FailureKind, ProfileResult, Visit
from cerebro_elastic.core.model.configs import Config, Parent, Status
from cerebro_elastic.core.model.events import ConfigEnded, UnitAssigned
from cerebro_elastic.core.model.interfaces import Proposal, SearchContext
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import Estimate, State
from cerebro_elastic.core.model.units import CheckpointRef, Phase, Strategy, Unit
from cerebro_elastic.scheduling.longest_remaining import LongestRemaining

SINGLE, DDP, GANG = Strategy(), Strategy("ddp", 2), Strategy("fsdp", 2, 2)
PLAN = Plan("r", 2, 2, max_nodes=4, tries=2, strategies=(SINGLE, DDP, GANG))
UNIT = Unit("c0", 0, 0)
PROFILE = Unit("c0", 0, 0, Phase.PROFILE)
REF = CheckpointRef("u", "d", 1)


def profiled(
    strategy: Strategy, seconds: float = 0.0, refusal: str | None = None, on: str = "cpu"
) -> ProfileResult:
    return ProfileResult(PROFILE, strategy, on, "a", 7, seconds, 100, refusal)


def known(*results: ProfileResult) -> Profiles:
    profiles: Profiles = {}
    for result in results:
        profiles = add_profile(profiles, result)
    return profiles


def failure(kind: FailureKind, strategy: Strategy = SINGLE, unit: Unit = UNIT, on: str = "cpu") -> Failure:
    return Failure(unit, "a", 9, kind, "boom", strategy, on)


def step(
    profiles: Profiles,
    *failures: Failure,
    most: int = 2,
    ranks: int = 2,
    phase: Phase = Phase.TRAIN,
    plan: Plan = PLAN,
) -> NextStep | None:
    """The next step of c0, the only config, on ``most`` nodes."""
    seen = (0, 1) if phase is Phase.EVALUATE else ()
    config = Config("c0", {}, visited=seen, failures=failures)
    plan = replace(plan, evaluations=1)
    return turn_of(State(plan, {"c0": config}, profiles=profiles), "c0", most, ranks)


def turn_of(state: State, config: str, most: int, ranks: int = 2) -> NextStep | None:
    assert state.plan is not None
    nodes = {name: Node(name, "h", ranks=ranks) for name in "abcd"[:most]}
    return next_steps(state, state.plan, nodes, state.configs)[config].get(("cpu", ranks))


def test_each_strategy_is_profiled_in_order_and_then_the_fastest_is_used() -> None:
    assert step({}) == NextStep(SINGLE, profile=True)
    assert step(known(profiled(SINGLE, 4.0))) == NextStep(DDP, profile=True)
    assert step(known(profiled(SINGLE, 4.0), profiled(DDP, 3.0))) == NextStep(GANG, profile=True)
    assert step(known(profiled(SINGLE, 4.0), profiled(DDP, 3.0)), most=1) == NextStep(DDP, seconds=3.0), (
        "there is no gang"
    )
    all_tried = known(profiled(SINGLE, 4.0), profiled(DDP, 3.0), profiled(GANG, 2.0))
    assert step(all_tried) == NextStep(GANG, seconds=2.0)
    assert step(all_tried, most=1) == NextStep(DDP, seconds=3.0)
    assert step(all_tried, most=1, ranks=1) == NextStep(SINGLE, seconds=4.0), "a node of one rank cannot"


def test_a_strategy_is_profiled_on_each_kind_of_node() -> None:
    assert step(known(profiled(SINGLE, 4.0, on="A100"))) == NextStep(SINGLE, profile=True)


def test_an_evaluation_waits_for_no_profile() -> None:
    assert step({}, phase=Phase.EVALUATE) == NextStep(SINGLE)
    assert step(known(profiled(DDP, 3.0)), phase=Phase.EVALUATE) == NextStep(DDP, seconds=3.0)


def test_a_single_strategy_is_neither_profiled_nor_refused() -> None:
    alone = replace(PLAN, strategies=(GANG,))
    assert step({}, plan=alone) == NextStep(GANG)
    assert step({}, plan=alone, most=1) is None
    config = Config("c0", {}, failures=(failure(FailureKind.OUT_OF_MEMORY, GANG),))
    assert refusals(config, "cpu", {}, alone) == {}


@pytest.mark.parametrize(
    ("failures", "refused"),
    [
        ([failure(FailureKind.OUT_OF_MEMORY)], True),
        ([failure(FailureKind.OUT_OF_MEMORY, on="A100")], False),
        ([failure(FailureKind.EXCEPTION)] * 2, False),
        ([failure(FailureKind.CRASH, unit=PROFILE)], False),
        ([failure(FailureKind.CRASH, unit=PROFILE)] * 2, True),
        ([failure(FailureKind.STORAGE, unit=PROFILE)] * 2, False),
        ([failure(FailureKind.NOT_FINITE, unit=PROFILE)], True),
    ],
)
def test_some_failures_refuse_the_strategy(failures: list[Failure], refused: bool) -> None:
    all_tried = known(profiled(SINGLE, 1.0), profiled(DDP, 3.0), profiled(GANG, 2.0))
    found = step(all_tried, *failures)
    assert found is not None
    assert found.strategy == (GANG if refused else SINGLE)


def test_visits_refine_their_own_strategy_alone() -> None:
    profiles = known(profiled(SINGLE, 4.0), profiled(DDP, 3.0))
    visit = Visit(UNIT, 0, "a", 9, None, REF, 1, 1, 2.0, 0.5, 0.0, strategy=SINGLE)
    after = refine(profiles, visit)["c0"]
    assert [(e.strategy, e.seconds, e.units) for e in after] == [(SINGLE, 3.0, 1), (DDP, 3.0, 0)]
    for teaches_nothing in (
        replace(visit, skip=1),
        replace(visit, whole=False),
        replace(visit, hardware="A100"),
        replace(visit, unit=Unit("c0", 0, 0, Phase.EVALUATE)),
    ):
        assert refine(profiles, teaches_nothing)["c0"] == profiles["c0"]


def test_a_child_profiles_only_what_its_parent_had_refused() -> None:
    parent, mother = Config("c0", {}, head=REF), Parent("c0", REF, 1, "c0")
    child = Config("c1", {}, head=REF, parent=mother)
    grandchild = Config("c2", {}, head=REF, parent=Parent("c1", REF, 1, "c0"))
    profiles = known(profiled(SINGLE, 4.0), profiled(DDP, 3.0), profiled(GANG, refusal="too large"))
    state = State(PLAN, {c.id: c for c in (parent, child, grandchild)}, profiles=profiles)
    for config in (child, grandchild):
        alone = replace(state, configs={**state.configs, "c0": replace(parent, status=Status.STOPPED)})
        assert turn_of(alone, config.id, 1) == NextStep(DDP, seconds=3.0)
        assert turn_of(alone, config.id, 4) == NextStep(GANG, profile=True)
        assert expected_seconds(state, config.id, DDP, "cpu") == 3.0
    starved = replace(child, failures=(failure(FailureKind.OUT_OF_MEMORY, DDP),))
    starving = replace(state, configs={**state.configs, "c1": starved})
    assert turn_of(starving, "c1", 1) == NextStep(SINGLE, seconds=4.0)
    own = replace(state, profiles={**profiles, "c1": (Estimate(DDP, "cpu", 9.0, 100),)})
    assert turn_of(own, "c2", 1) == NextStep(SINGLE, seconds=4.0), "its parent knows better"


def test_the_story_lists_each_strategy_and_its_reason() -> None:
    config = Config("c0", {}, failures=(failure(FailureKind.OUT_OF_MEMORY, GANG),))
    profiles = known(profiled(SINGLE, refusal="too large"), profiled(DDP, refusal="no parameters"))
    assert infeasible(config, {"cpu"}, profiles, PLAN) == (
        "no strategy is feasible: single on cpu: too large; ddp x2 on cpu: no parameters; "
        "fsdp x2 over 2 nodes on cpu: boom"
    )
    alike = known(profiled(SINGLE, refusal="too large"), profiled(DDP, refusal="too large"))
    assert infeasible(config, {"cpu"}, alike, PLAN) == (
        "no strategy is feasible: single on cpu, ddp x2 on cpu: too large; fsdp x2 over 2 nodes on cpu: boom"
    )
    assert infeasible(config, {"cpu", "A100"}, profiles, PLAN) is None, "the other nodes are not tried"
    assert infeasible(config, {"cpu"}, known(profiled(SINGLE, refusal="too large")), PLAN) is None
    assert infeasible(config, (), {}, PLAN) is None


class NoSearch:
    def decide(self, _outlook: SearchContext) -> tuple[()]:
        return ()

    def propose(self, _outlook: SearchContext) -> tuple[Proposal, ...]:
        return ()


def decided(config: Config, profiles: Profiles) -> list[UnitAssigned | ConfigEnded]:
    nodes = {"a": Node("a", "h", 2, registration=1), "b": Node("b", "h", 2, registration=2)}
    configs = {"c0": replace(config, head=REF, revision=9)}
    state = State(PLAN, configs, nodes, {0: "a", 1: "b"}, profiles=profiles, revision=20)
    actions = decide(state, LongestRemaining(), NoSearch())
    assert all(isinstance(action, UnitAssigned | ConfigEnded) for action in actions)
    return actions  # type: ignore[return-value]


def test_after_an_out_of_memory_error_the_config_continues_with_the_next_strategy() -> None:
    both = known(profiled(SINGLE, 1.0), profiled(DDP, 3.0), profiled(GANG, refusal="no"))
    starved = Config("c0", {}, failures=(failure(FailureKind.OUT_OF_MEMORY),) * 3)
    (assign,) = decided(starved, both)
    assert isinstance(assign, UnitAssigned)
    assert (assign.attempt.strategy, assign.attempt.expected) == (DDP, 3.0)


def test_a_config_without_a_feasible_strategy_has_failed() -> None:
    config = Config("c0", {}, failures=(failure(FailureKind.OUT_OF_MEMORY),))
    (end,) = decided(config, known(profiled(DDP, refusal="no"), profiled(GANG, refusal="no")))
    assert isinstance(end, ConfigEnded)
    assert end.status is Status.FAILED
    assert end.reason == (
        "no strategy is feasible: single on cpu: boom; ddp x2 on cpu, fsdp x2 over 2 nodes on cpu: no"
    )
