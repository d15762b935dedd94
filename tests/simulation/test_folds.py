"""Searches over configs that are trained on folds, or with several seeds, on a virtual clock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from cerebro_elastic.core.history.machine import fold
from cerebro_elastic.core.history.members import by_config, mean_curve, member, statuses
from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.invariants import check
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.events import ConfigCreated, ConfigEnded, UnitAssigned
from cerebro_elastic.core.model.interfaces import ConfigView, SearchContext
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import Point, State
from cerebro_elastic.core.model.units import Phase
from cerebro_elastic.errors import IllegalEvent, RecipeError
from cerebro_elastic.recipes import Objective
from cerebro_elastic.reporting.gap import gap
from cerebro_elastic.reporting.results import leaderboard
from cerebro_elastic.runs.forecast.simulate import simulate_plan, toy_curves
from cerebro_elastic.runs.from_recipe import make_search, plan_of
from cerebro_elastic.scheduling.longest_remaining import LongestRemaining
from cerebro_elastic.simulation import Simulation, Times, redecide
from support.builders import recipe
from support.fault_sentences import read_faults


def recipe_of(configs: int = 6, partitions: int = 6, **changed: Any) -> Any:
    search = {"space": {"lr": [0.01 * k for k in range(1, configs + 1)]}, **changed.pop("search", {})}
    data = {"source": "x.csv", "partitions": partitions, **changed.pop("data", {})}
    given = {"scheduler": "longest-remaining", "epochs": 2, "nodes": 3, **changed}
    return recipe(search, data=data, **given)


def simulated(**changed: Any) -> Simulation:
    """A run that keeps all invariants, and in which all decisions are found again."""
    faults = changed.pop("faults", "")
    recipe = recipe_of(**changed)
    validations = recipe.data.partitions // recipe.folds if recipe.folds else 1
    plan = plan_of(recipe, "folded", recipe.data.partitions, validations)
    done = simulate_plan(
        recipe, plan, Times(usual=10.0), toy_curves(recipe, plan), faults=read_faults(faults)
    )
    assert check(done.events) == []
    assert redecide(done.events, LongestRemaining(), make_search(recipe)).explanation is None
    return done


def test_each_fold_is_validated_where_its_partitions_lie_and_nothing_waits() -> None:
    done = simulated(validation={"folds": 3, "early_stop": False})
    assert statuses(done.state.configs.values()) == {"finished": 6}
    assert len(done.state.configs) == 18
    for event in done.events:
        if isinstance(event, UnitAssigned):
            unit, config = event.attempt.unit, done.state.configs[event.attempt.unit.config]
            assert event.attempt.node in done.state.homes[unit.partition]
            assert (unit.partition // 2 == config.fold) == (unit.phase is Phase.EVALUATE)
    known = gap(done.state)
    assert known is not None
    assert known.forecast <= 1.02 * known.bound


def test_a_config_whose_mean_is_worse_than_the_best_ones_worst_fold_is_given_up() -> None:
    shape: dict[str, Any] = {"partitions": 12, "nodes": 2, "epochs": 1}
    done = simulated(validation={"folds": 3}, **shape)
    everything = simulated(validation={"folds": 3, "early_stop": False}, **shape)
    assert done.state.usage.units < 0.8 * everything.state.usage.units
    board, whole = (
        leaderboard(RunView(each.events), Objective(metric="val_loss", mode="min"))
        for each in (done, everything)
    )
    assert board[0].config == whole[0].config
    assert board[0].scores == whole[0].scores
    stops = [event for event in done.events if isinstance(event, ConfigEnded)]
    assert stops
    assert all("worse than the worst fold of" in stop.reason for stop in stops)
    known = gap(done.state)
    assert known is not None
    assert known.forecast <= 1.02 * known.bound, "no node is idle while there is something to train"


@pytest.mark.parametrize(
    "search",
    [
        {"method": "random", "num": 4},
        {"method": "tpe", "num": 4},
        {"method": "median", "num": 6, "n_startup_trials": 1},
        {"method": "asha", "num": 6, "reduction_factor": 2},
        {"method": "hyperband", "reduction_factor": 2},
    ],
    ids=lambda search: search["method"],
)
def test_a_search_decides_on_all_trainings_of_a_config(search: dict[str, Any]) -> None:
    faults = "kill node-1 at 60 for 30" if search["method"] == "asha" else ""
    done = simulated(validation={"folds": 2}, partitions=4, search=search, faults=faults)
    for name, members in by_config(done.state.configs.values()).items():
        assert [member.fold for member in members] == [0, 1], name
        assert {member.status for member in members} <= {Status.FINISHED, Status.STOPPED}
        assert len({member.reason for member in members if member.status is Status.STOPPED}) <= 1


def test_more_seeds_for_the_best() -> None:
    done = simulated(configs=8, partitions=3, repeats={"min": 1, "max": 4})
    seeds = {name: len(members) for name, members in by_config(done.state.configs.values()).items()}
    board = leaderboard(RunView(done.events), Objective(metric="val_loss", mode="min"))
    assert sorted(seeds.values()) == [1, 1, 1, 1, 2, 2, 4, 4]
    assert {row.config for row in board[:2]} == {name for name, count in seeds.items() if count == 4}
    assert [done.state.plan.seed_of(r) for r in range(2)] != [0, 0] if done.state.plan else False


def test_a_config_begins_with_all_of_its_trainings_in_one_event() -> None:
    shape: dict[str, Any] = {"validation": {"folds": 3, "early_stop": False}, "repeats": {"min": 2, "max": 3}}
    done = simulated(configs=3, **shape)
    created = [event for event in done.events if isinstance(event, ConfigCreated)]
    assert [len(event.configs) for event in created] == [6, 6, 6, 3, 3]
    names = [f"c0000.f{fold}.r{repeat}" for repeat in (0, 1) for fold in range(3)]
    assert [config.id for config in created[0].configs] == names
    partly = [
        replace(created[0], others=created[0].others[:-1]) if e == created[0] else e for e in done.events
    ]
    assert any("c0000 has 2 of 3 folds of seed 1" in str(found) for found in check(partly))


def seeds(name: str, *values: float) -> ConfigView:
    """A config whose seeds have these values of the objective."""
    points = [[Point(1, 1, {"score": value}, ends=True)] for value in values]
    members = [
        ConfigView(f"{name}.r{number}", {}, Status.FINISHED, curve=curve, repeat=number)
        for number, curve in enumerate(points)
    ]
    curve = mean_curve(points, [True] * len(points))
    return ConfigView(name, {"lr": 0.01}, Status.FINISHED, curve=curve, members=members)


@pytest.mark.parametrize(
    ("views", "further"),
    [
        pytest.param(
            [seeds("a", 1), seeds("b", 2), seeds("c", 3), seeds("d", 4), seeds("e", 5)],
            {"a": 2, "b": 2, "c": 2},
            id="the better half, and one more seed",
        ),
        pytest.param(
            [seeds("a", 1, 9), seeds("b", 2), seeds("c", 3), seeds("d", 4), seeds("e", 5)],
            {"b": 2, "c": 2},
            id="a leader that was lost between two of them leaves the others to the next",
        ),
        pytest.param(
            [seeds("a", 1, 9), seeds("b", 2, 2.5), seeds("c", 3, 2), seeds("d", 4), seeds("e", 5)],
            {"b": 4, "c": 4},
            id="the last two get all, ranked by the mean of their seeds",
        ),
        pytest.param(
            [seeds("a", 1, 1), seeds("b", 2, 2), seeds("c", 3)], {}, id="seeds of a task that draws nothing"
        ),
        pytest.param([seeds("a", math.nan), seeds("b", 1)], {"b": 4}, id="one that diverged"),
    ],
)
def test_the_contenders_get_further_seeds(views: Sequence[ConfigView], further: dict[str, int]) -> None:
    objective = {"metric": "score"}
    search = make_search(recipe_of(configs=1, repeats={"min": 1, "max": 4}, objective=objective))
    assert {p.parent: p.repeats for p in search.propose(SearchContext(views))} == further


def trained(name: str, *values: float, folds: int = 3) -> ConfigView:
    """A config that has these values of the objective on its first folds, and no others yet."""
    members = [
        ConfigView(
            f"{name}.f{fold}",
            {},
            Status.FINISHED if fold < len(values) else Status.LIVE,
            curve=[Point(1, 1, {"score": values[fold]}, ends=True)] if fold < len(values) else [],
            fold=fold,
        )
        for fold in range(folds)
    ]
    ended = [member.status is Status.FINISHED for member in members]
    status = Status.FINISHED if all(ended) else Status.LIVE
    curve = mean_curve([member.curve for member in members], ended)
    return ConfigView(name, {}, status, curve=curve, members=members)


@pytest.mark.parametrize("shift", [0.0, -5.0, 5.0])
@pytest.mark.parametrize("mode", ["min", "max"])
def test_the_early_stop_forgives_as_much_whatever_the_objectives_sign_and_mode(
    mode: str, shift: float
) -> None:
    objective = {"metric": "score", "mode": mode}
    search = make_search(recipe_of(validation={"folds": 3}, objective=objective))
    sign = 1 if mode == "min" else -1

    def stopped(*values: float) -> bool:
        best, other = (
            trained(name, *(sign * value + shift for value in of))
            for name, of in (("c0000", (1.0, 2.0, 3.0)), ("c0001", values))
        )
        return [decision.config for decision in search.decide(SearchContext([best, other]))] == ["c0001"]

    assert stopped(3.5)
    assert stopped(2.5, 4.5)
    assert stopped(math.nan)
    assert not stopped()
    assert not stopped(2.75), "it is worse than the mean of the best one, and better than its worst fold"
    assert not stopped(3.0)
    assert not stopped(4.0, 1.5)


def test_a_best_config_with_a_fold_that_is_not_finite_stops_nobody() -> None:
    search = make_search(recipe_of(validation={"folds": 3}, objective={"metric": "score"}))
    assert search.decide(SearchContext([trained("c0000", 1.0, math.nan, 1.0), trained("c0001", 9.0)])) == []


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (Config("c0009", {"lr": 1.0}), "all 2 folds begin together"),
        (Config("c0009.f2", {"lr": 1.0}, member_of="c0009", fold=2), "all 2 folds begin together"),
        (Config("c0009.f0.r1", {"lr": 1.0}, member_of="c0009", fold=0), "the id of .* would be c0009.f0"),
        (Config("c0009.f0", {"lr": 2.0}, member_of="c0009", fold=0), "the same hyper-parameters"),
        (Config("c0008.f0", {"lr": 1.0}, member_of="c0008", fold=0), "the id of c0009.f1 would be c0008.f1"),
    ],
)
def test_what_is_no_member_cannot_be_created(config: Config, why: str) -> None:
    plan = Plan("folded", 4, 1, folds=2)
    second = member("c0009", {"lr": 1.0}, 1, 0, plan)
    with pytest.raises(IllegalEvent, match=why):
        fold(State(plan=plan), ConfigCreated(1, config, (second,)))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"validation": {"folds": 4}},
            "6 partitions cannot be divided into 4 folds.*take 2, 3, 6 folds, or 8",
        ),
        ({"validation": {"folds": 3}, "data": {"valid": 0.2}}, "data.valid is 0.2"),
        ({"validation": {"folds": 6}, "repeats": 11}, "11 seeds and 6 folds a config has 66 trainings"),
        (
            {
                "validation": {"folds": 3},
                "data": {"source": None, "datamodule": "m:D"},
                "task": {"kind": "lightning", "module": "m:M"},
            },
            "its own val_dataloader",
        ),
        ({"repeats": {"min": 3, "max": 2}}, "min is 3 and max 2"),
        ({"repeats": 2, "search": {"method": "asha", "num": 9, "resource": "units"}}, "resource: epochs"),
        ({"repeats": 2, "search": {"method": "pbt", "num": 4}}, "method pbt"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        recipe_of(**changed)
