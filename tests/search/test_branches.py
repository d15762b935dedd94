"""A choice whose branches have spaces of their own: each config has the hyper-parameters of its branch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from cerebro_elastic import RecipeError, RunError
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.interfaces import ConfigView, SearchContext
from cerebro_elastic.core.model.state import Point
from cerebro_elastic.recipes import Domain, Recipe
from cerebro_elastic.recipes.search import active
from cerebro_elastic.runs.controlled import _checked
from cerebro_elastic.runs.from_recipe import first_hparams, make_search
from cerebro_elastic.search.sampling import contains
from support import builders

SPACE = {
    "optimizer": {
        "branches": {
            "sgd": {"lr": {"loguniform": [0.01, 1]}, "momentum": {"uniform": [0, 0.99]}},
            "adam": {"lr": {"loguniform": [1e-5, 1e-3]}},
            "none": {},
        }
    },
    "width": {"int": [4, 64]},
}
NESTED = {"lr": [1, 2], "nesterov": {"branches": {"yes": {"m": [3, 4]}, "no": {}}}}
LISTED = {
    "optimizer": {"branches": {"sgd": NESTED, "adam": {"lr": [1, 2]}, "none": {}}},
    "width": [16, 32],
}


def recipe(space: Mapping[str, Any], **search: Any) -> Recipe:
    return builders.recipe({"space": space, **search})


def test_a_grid_has_each_point_of_each_branch_once() -> None:
    points = first_hparams(recipe(LISTED))
    assert len(points) == len({str(sorted(point.items())) for point in points}) == 2 * (2 * 3 + 2 + 1)
    assert {"optimizer": "sgd", "lr": 2, "nesterov": "yes", "m": 4, "width": 32} in points
    assert {"optimizer": "none", "width": 16} in points
    kept = first_hparams(recipe(LISTED, constraints=["m < 4"]))
    assert kept == [point for point in points if point.get("m", 3) < 4], "it is about one branch alone"


@pytest.mark.parametrize("method", ["random", "tpe", "nsga2"])
def test_samplers_propose_points_of_the_space_and_learn_from_all_branches(method: str) -> None:
    given = recipe(SPACE, method=method, num=30, concurrency=1)
    views: list[ConfigView] = []
    while len(views) < 20:
        context = SearchContext(configs=views)
        (first, *_), again = (make_search(given).propose(context) for _ in range(2))
        assert first == again[0], "the next point follows from the history alone"
        space = active(given.search.space, first.hparams)
        assert set(first.hparams) == set(space)
        assert all(contains(domain, first.hparams[name]) for name, domain in space.items())
        loss = {"sgd": 3.0, "adam": 1.0, "none": 2.0}[first.hparams["optimizer"]]
        curve = [Point(1, 1, {"val_loss": loss}, ends=True)]
        views.append(
            ConfigView(f"c{len(views)}", first.hparams, Status.FINISHED, 1, 1, curve, origin=first.origin)
        )
    if method == "tpe":
        assert [view.hparams["optimizer"] for view in views[12:]].count("adam") >= 5


BAD: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "an empty branch": ({"o": {"branches": {"a": None}}}, {}, r"branch without further .* is \{\}"),
    "other kinds": (
        {"o": {"branches": {"a": {"lr": [1]}, "b": {"lr": {"uniform": [0, 1]}}}}},
        {},
        "'lr' in branch 'b' of 'o' is uniform, in another branch choice",
    ),
    "in two choices": (
        {"o": {"branches": {"a": {"lr": [1]}}}, "p": {"branches": {"a": {"lr": [1]}}}},
        {},
        "of another choice, and a config could have both",
    ),
    "pbt": (SPACE, {"method": "pbt", "num": 4}, "method pbt .* `branches`"),
    "qmc": (SPACE, {"method": "qmc", "num": 4}, "qmc fills one box"),
    "a point of another branch": (
        LISTED,
        {"enqueue": [{"optimizer": "adam", "lr": 1, "m": 3, "width": 16}]},
        "'m' is not in the space; it is in a branch that the point does not take",
    ),
    "no such branch": (LISTED, {"enqueue": [{"optimizer": "lion", "width": 16}]}, "which is no branch of it"),
}


@pytest.mark.parametrize("why", BAD)
def test_a_space_that_cannot_be_searched_is_refused(why: str) -> None:
    space, search, message = BAD[why]
    with pytest.raises(RecipeError, match=message):
        first_hparams(recipe(space, **search))


def test_a_clone_may_take_another_branch_and_has_what_that_needs() -> None:
    space = {name: Domain.model_validate(values) for name, values in SPACE.items()}
    parent = Config("c0000", {"optimizer": "sgd", "lr": 0.1, "momentum": 0.9, "width": 8})
    assert _checked("c0000", parent, {"width": 16.0}, space) == ({"width": 16}, [])
    adam = {"optimizer": "adam", "lr": 1e-4}
    assert _checked("c0000", parent, adam, space) == (adam, ["momentum"])
    for changed, message in (
        (
            {"optimizer": "adam", "momentum": 0.5},
            "no hyper-parameter 'momentum', in the branch that it takes",
        ),
        ({"optimizer": "lion"}, "optimizer has to be one of 'sgd', 'adam', 'none'"),
    ):
        with pytest.raises(RunError, match=message):
            _checked("c0000", parent, changed, space)
    other = Config("c0001", {"optimizer": "adam", "lr": 1e-4, "width": 8})
    with pytest.raises(RunError, match="the branch that the clone takes needs momentum"):
        _checked("c0001", other, {"optimizer": "sgd", "lr": 0.1}, space)
