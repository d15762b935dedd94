"""Which strategies are profiled, chosen and refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cerebro_elastic.core.decisions.next_steps import (
    NextStep,
    expected_seconds,
    infeasible,
    next_steps,
)
from cerebro_elastic.core.history.estimates import Profiles, add_profile, refine
from cerebro_elastic.core.model.attempts import Failure, FailureKind, ProfileResult
from cerebro_elastic.core.model.configs import Config, Parent, Status
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import Estimate, State
from cerebro_elastic.core.model.units import Phase, Strategy, Unit
from support.builders import REF, config, failure, visit

SINGLE, DDP, GANG = Strategy(), Strategy("ddp", 2), Strategy("fsdp", 2, 2)
PLAN = Plan("r", 2, 2, max_nodes=4, tries=2, strategies=(SINGLE, DDP, GANG))
UNIT = Unit("c0", 0, 0)
PROFILE = Unit("c0", 0, 0, Phase.PROFILE)


def profiled(
    strategy: Strategy, seconds: float = 0.0, refusal: str | None = None, on: str = "cpu"
) -> ProfileResult:
    return ProfileResult(PROFILE, strategy, on, "a", 7, seconds, 100, refusal)


def known(*results: ProfileResult) -> Profiles:
    profiles: Profiles = {}
    for result in results:
        profiles = add_profile(profiles, result)
    return profiles


def failed(kind: FailureKind, strategy: Strategy = SINGLE, unit: Unit = UNIT, on: str = "cpu") -> Failure:
    return failure(unit, kind, strategy=strategy, hardware=on)


def step(
    profiles: Profiles,
    *failures: Failure,
    most: int = 2,
    ranks: int = 2,
) -> NextStep | None:
    """The next step of c0, the only config, on ``most`` nodes."""
    configs = {"c0": Config("c0", {}, failures=failures)}
    return turn_of(State(PLAN, configs, profiles=profiles), "c0", most, ranks)


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


@pytest.mark.parametrize(
    ("failures", "refused"),
    [
        ([failed(FailureKind.OUT_OF_MEMORY)], True),
        ([failed(FailureKind.OUT_OF_MEMORY, on="A100")], False),
        ([failed(FailureKind.EXCEPTION)] * 2, False),
        ([failed(FailureKind.CRASH, unit=PROFILE)], False),
        ([failed(FailureKind.CRASH, unit=PROFILE)] * 2, True),
        ([failed(FailureKind.STORAGE, unit=PROFILE)] * 2, False),
        ([failed(FailureKind.NOT_FINITE, unit=PROFILE)], True),
    ],
)
def test_some_failures_refuse_the_strategy(failures: list[Failure], refused: bool) -> None:
    all_tried = known(profiled(SINGLE, 1.0), profiled(DDP, 3.0), profiled(GANG, 2.0))
    found = step(all_tried, *failures)
    assert found is not None
    assert found.strategy == (GANG if refused else SINGLE)


def test_visits_refine_their_own_strategy_alone() -> None:
    profiles = known(profiled(SINGLE, 4.0), profiled(DDP, 3.0))
    usual = visit(seconds=2.0)
    after = refine(profiles, usual)["c0"]
    assert [(e.strategy, e.seconds, e.units) for e in after] == [(SINGLE, 3.0, 1), (DDP, 3.0, 0)]
    for teaches_nothing in (
        replace(usual, skip=1),
        replace(usual, whole=False),
        replace(usual, hardware="A100"),
        visit(phase=Phase.EVALUATE, seconds=2.0),
    ):
        assert refine(profiles, teaches_nothing)["c0"] == profiles["c0"]


def test_a_child_profiles_only_what_its_parent_had_refused() -> None:
    parent, child = config(), config("c1", parent=Parent("c0", REF, 1, "c0"))
    grandchild = config("c2", parent=Parent("c1", REF, 1, "c0"))
    profiles = known(profiled(SINGLE, 4.0), profiled(DDP, 3.0), profiled(GANG, refusal="too large"))
    state = State(PLAN, {c.id: c for c in (parent, child, grandchild)}, profiles=profiles)
    for each in (child, grandchild):
        alone = replace(state, configs={**state.configs, "c0": replace(parent, status=Status.STOPPED)})
        assert turn_of(alone, each.id, 1) == NextStep(DDP, seconds=3.0)
        assert turn_of(alone, each.id, 4) == NextStep(GANG, profile=True)
        assert expected_seconds(state, each.id, DDP, "cpu") == 3.0
    starved = replace(child, failures=(failed(FailureKind.OUT_OF_MEMORY, DDP),))
    starving = replace(state, configs={**state.configs, "c1": starved})
    assert turn_of(starving, "c1", 1) == NextStep(SINGLE, seconds=4.0)
    own = replace(state, profiles={**profiles, "c1": (Estimate(DDP, "cpu", 9.0, 100),)})
    assert turn_of(own, "c2", 1) == NextStep(SINGLE, seconds=4.0), "its parent knows better"


def test_no_strategy_is_feasible_once_each_is_refused_on_each_kind_of_node() -> None:
    starved = config(failures=(failed(FailureKind.OUT_OF_MEMORY, GANG),))
    alike = known(profiled(SINGLE, refusal="too large"), profiled(DDP, refusal="too large"))
    assert infeasible(starved, {"cpu"}, alike, PLAN) == (
        "no strategy is feasible: single on cpu, ddp x2 on cpu: too large; fsdp x2 over 2 nodes on cpu: boom"
    )
    assert infeasible(starved, {"cpu", "A100"}, alike, PLAN) is None, "the other nodes are not tried"
    assert infeasible(starved, (), {}, PLAN) is None
