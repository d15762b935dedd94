"""The contract of search procedures, over every one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from cerebro_elastic import registry
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.interfaces import ConfigView
from cerebro_elastic.core.model.state import Point
from cerebro_elastic.errors import SearchError
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.search.criterion import Resource
from cerebro_elastic.testing.search_contract import Tryout, check_search, undefined
from support import builders

SPACE = {"lr": {"loguniform": [1e-3, 1]}, "drop": {"uniform": [0, 0.5]}}
CASES: dict[str, dict[str, Any]] = {
    "grid": {"space": {"lr": [0.1, 0.2, 0.3], "drop": [0, 0.1]}},
    "random": {"num": 8},
    "tpe": {"num": 8, "options": {"n_startup_trials": 3}},
    "cmaes": {"num": 5},
    "gp": {"num": 4, "options": {"n_startup_trials": 3}},
    "qmc": {"num": 8},
    "nsga2": {"num": 8, "options": {"population_size": 3}},
    "tune": {"num": 8, "options": {"searcher": "hyperopt", "n_initial_points": 3}},
    "median": {"num": 8, "n_startup_trials": 2},
    "asha": {"num": 20},
    "asha in units": {"method": "asha", "num": 27, "resource": "units", "metric": "train_loss"},
    "asha by tpe": {"method": "asha", "num": 12, "sampler": "tpe", "options": {"n_startup_trials": 3}},
    "hyperband": {},
    "hyperband asynchronous": {"method": "hyperband", "asynchronous": True, "num": 30},
    "bohb": {"max_epochs": 3},
    "pbt": {"num": 6, "perturbation_interval": 2},
    "enqueued": {"method": "tpe", "num": 6, "enqueue": [{"lr": 0.1, "drop": 0.2}, {"lr": 0.2, "drop": 0.2}]},
}


def recipe(case: str, **more: Any) -> Recipe:
    search = {"method": case, "space": SPACE, **CASES[case], **more}
    return builders.recipe(search, epochs=search.get("max_epochs", 9))


def checked(
    case: str,
    seed: int = 0,
    learn: Any = None,
    finishes: bool = True,
    trouble: bool = True,
    **more: Any,
) -> Tryout:
    resolved = recipe(case, **more)
    return check_search(
        lambda: registry.load("cerebro.search", resolved.search.method)(resolved),
        seed,
        most=resolved.search.num or 100,
        epochs=resolved.epochs,
        finishes=finishes,
        trouble=trouble,
        concurrency=resolved.search.concurrency,
        **({"learn": learn} if learn else {}),
    )


def test_every_method_has_a_case() -> None:
    assert {recipe(case).search.method for case in CASES} == set(registry.BUILT_IN["cerebro.search"])


@pytest.mark.parametrize("case", CASES)
def test_contract(case: str) -> None:
    tryout = checked(case)
    again = checked(case)
    assert tryout.log == again.log, "the same seed and history, the same answers"


@pytest.mark.parametrize("case", ["median", "asha", "hyperband", "hyperband asynchronous", "pbt"])
def test_contract_in_another_order(case: str) -> None:
    checked(case, 1)


@pytest.mark.parametrize("case", [case for case in CASES if case not in ("gp", "cmaes")])
def test_a_search_survives_an_objective_that_is_never_a_number(case: str) -> None:
    checked(case, learn=undefined, finishes=False)


def ends_its_epochs(tryout: Tryout) -> bool:
    """Nothing was begun that the budget was not enough for."""
    own = (view for view in tryout.configs.values() if view.status is not Status.FAILED and not view.by_hand)
    return all(view.units == view.epochs * tryout.partitions for view in own)


@pytest.mark.parametrize(
    ("budget", "within"),
    [
        ({"epochs": 20}, lambda r: r.usage.units <= 40 and ends_its_epochs(r)),
        ({"units": 31}, lambda r: r.usage.units <= 31 and ends_its_epochs(r)),
        ({"timeout": 10.0}, lambda r: r.now <= 11.5),
        ({"target": 1.3}, lambda r: r.usage.units < 80),
    ],
    ids=["epochs", "units", "timeout", "target"],
)
@pytest.mark.parametrize("case", ["random", "asha", "pbt"])
def test_budgets_are_kept(case: str, budget: dict[str, float], within: Any) -> None:
    tryout = checked(case, finishes=False, budget=budget)
    assert within(tryout)
    reasons = set(tryout.reasons.values())
    assert any("budget is used up" in reason or "has reached the target" in reason for reason in reasons)


def test_hyperband_promotes_the_best_of_each_rung() -> None:
    tryout = checked("hyperband", trouble=False)
    brackets: dict[int, list[int]] = {}
    for view in tryout.configs.values():
        brackets.setdefault(view.origin["bracket"], []).append(view.epochs)
    counts = {number: sorted(Counter(epochs).items()) for number, epochs in brackets.items()}
    assert counts == {0: [(1, 6), (3, 2), (9, 1)], 1: [(3, 4), (9, 1)], 2: [(9, 3)]}


def test_pbt_children_go_on_from_the_best() -> None:
    tryout = checked("pbt")
    children = [s for s in tryout.configs.values() if s.parent]
    assert children
    for child in children:
        parent, replaced = tryout.configs[child.parent or ""], tryout.configs[child.origin["replaces"]]
        assert child.origin["member"] == replaced.origin["member"] != parent.origin["member"]
        assert child.hparams != parent.hparams


@pytest.mark.parametrize("case", ["tpe", "median", "asha", "hyperband", "pbt", "asha in units"])
def test_an_objective_that_is_never_logged_is_named(case: str) -> None:
    def elsewhere(_standing: ConfigView, _units: int, ends: bool) -> dict[str, float]:
        return {"val_los": 1.0} if ends else {"loss": 1.0}

    with pytest.raises(SearchError, match=r"which was not logged where it does; (did you|choices)") as error:
        checked(case, learn=elsewhere)
    assert ("did you mean 'val_los'" in str(error.value)) == (case != "asha in units")


def test_where_a_child_was_born_inside_an_epoch_no_epoch_of_its_own_has_ended() -> None:
    inside, end = Point(7, 3, {"a": 1.0}), Point(8, 4, {"a": 2.0}, ends=True)
    child = ConfigView("c0001", {}, epochs=4, units=8, curve=(inside, end), parent="c0000")
    assert Resource("epochs").at(child, 3) is None
    assert Resource("epochs").at(child, 4) is end
    assert Resource("units").at(child, 7) is inside
    assert Resource("units").at(child, 6) is None
    evaluated = ConfigView("c0002", {}, curve=(Point(2, 0, {"a": 1.0}), Point(2, 1, {"a": 2.0}, ends=True)))
    assert Resource("units").at(evaluated, 2) is evaluated.curve[1]
