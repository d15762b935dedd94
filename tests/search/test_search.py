"""Grid and random search: every point once, in an order that the recipe alone decides."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.core.model.interfaces import ConfigView, Proposal, Search, SearchContext
from cerebro_elastic.errors import RecipeError
from cerebro_elastic.recipes import Domain, Recipe
from cerebro_elastic.search.procedure import grid, random
from cerebro_elastic.search.sampling import misfit, written_alike
from support import builders


def recipe(space: dict[str, Any], *, limit: int = 1000, seed: int = 0, **search: Any) -> Recipe:
    return builders.recipe({"space": space, **search}, seed=seed, limits={"configs": limit})


Make = Callable[[Recipe], Search]


def context(points: Sequence[HParams]) -> SearchContext:
    """All of them have become configs."""
    return SearchContext([ConfigView(f"c{place:04d}", point) for place, point in enumerate(points)])


def all_of(search: Search) -> list[HParams]:
    return [proposal.hparams for proposal in search.propose(SearchContext())]


def test_a_grid_is_every_point_once() -> None:
    points = all_of(grid(recipe({"lr": [0.1, 0.01], "width": {"int": [2, 4]}, "act": "relu"})))
    assert len(points) == 6
    assert {(p["lr"], p["width"]) for p in points} == {(lr, w) for lr in (0.1, 0.01) for w in (2, 3, 4)}
    assert all(p["act"] == "relu" for p in points)


@pytest.mark.parametrize(("search", "extra"), [(grid, {}), (random, {"method": "random", "num": 4})])
def test_a_created_config_is_not_proposed_again(search: Make, extra: dict[str, Any]) -> None:
    proposer = search(recipe({"a": [1, 2], "b": [3, 4]}, **extra))
    points = all_of(proposer)
    assert len(points) == 4
    assert proposer.propose(context(points[:1])) == [Proposal(point) for point in points[1:]]
    assert not proposer.propose(context(points))


def test_random_search_draws_distinct_points_by_the_seed() -> None:
    space = {
        "lr": {"loguniform": [1e-4, 1e-1]},
        "drop": {"uniform": [0, 0.5]},
        "n": {"int": [1, 3]},
        "a": ["x", "y"],
    }
    points = all_of(random(recipe(space, method="random", num=200, seed=3)))
    assert len({tuple(sorted(p.items())) for p in points}) == 200
    assert all(1e-4 <= p["lr"] <= 1e-1 and 0 <= p["drop"] <= 0.5 for p in points)
    assert {p["n"] for p in points} == {1, 2, 3}
    assert {p["a"] for p in points} == {"x", "y"}
    small = sum(math.log10(p["lr"]) < -2.5 for p in points)
    assert 70 < small < 130, "half of the draws lie in the lower half of the orders of magnitude"
    assert points == all_of(random(recipe(space, method="random", num=200, seed=3)))
    assert points != all_of(random(recipe(space, method="random", num=200, seed=4)))


@pytest.mark.parametrize(
    ("search", "wrong", "words"),
    [
        (grid, recipe({"lr": {"uniform": [0, 1]}}), "'lr' is continuous, a grid needs a list or int"),
        (grid, recipe({"a": {"int": [1, 10**9]}}), "more than 1,000,000 points, too many to go through"),
        (grid, recipe({"a": [1, 2]}, constraints=["a > 2"]), "no point of the space satisfies all"),
        (random, recipe({"a": [1, 2]}, method="random", num=3), "only 2 distinct points"),
    ],
)
def test_a_space_that_cannot_be_searched(search: Make, wrong: Recipe, words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        search(wrong)


@pytest.mark.parametrize(
    ("domain", "value", "wanted"),
    [
        ({"loguniform": [0.01, 1]}, 5, None),
        ({"uniform": [0, 1]}, float("inf"), "a number"),
        ({"int": [1, 8]}, 2.5, "a whole number"),
        ([16, 32], 64, None),
        ([16, 32], 0.5, "a whole number"),
        ([0.1, None], None, None),
        ([0.1], None, "a number"),
        (["relu", "tanh"], "gelu", "one of 'relu', 'tanh'"),
        ([True, False], 1, "one of True, False"),
    ],
)
def test_points_that_a_person_may_give_instead(domain: Any, value: Any, wanted: str | None) -> None:
    assert misfit(Domain.model_validate(domain), value) == wanted


@pytest.mark.parametrize(
    ("domain", "value", "wanted"),
    [
        ({"uniform": [0, 2]}, 1, 1.0),
        ({"int": [0, 8]}, 3.5, 3.5),
        ([0.1, 1.0], 1, 1.0),
        ([1, True], True, True),
        ({"uniform": [0, 2]}, 10**400, 10**400),
    ],
)
def test_a_number_gets_the_type_of_its_domain(domain: Any, value: Any, wanted: Any) -> None:
    alike = written_alike(Domain.model_validate(domain), value)
    assert (alike, type(alike)) == (wanted, type(wanted))
