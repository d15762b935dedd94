"""``data.partitions: auto``: one partition on each node where there is room, else several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cerebro_elastic.recipes import load_recipe, load_recipe_of
from cerebro_elastic.recipes.fields import MOST_NODES

RECIPE: dict[str, Any] = {
    "nodes": 2,
    "epochs": 3,
    "task": {"kind": "torch", "model_fn": "a:b", "loss": "mse_loss"},
    "data": {"source": "a:load"},
    "search": {"space": {"lr": [0.1, 0.2, 0.3, 0.4]}},
}


def chosen(root: Path, data: dict[str, Any], **more: Any) -> tuple[int, int, str]:
    values = {**RECIPE, "data": data, **more}
    recipe = load_recipe(values, root=root)
    assert load_recipe(recipe.resolved(), root=root) == recipe, "the record has the number"
    again = load_recipe(recipe, seed=1)  # as a run does that was given a recipe
    return recipe.data.partitions, recipe.replicas, str(again.choice or "")


THREE = {"space": {"lr": [0.1, 0.2, 0.3]}}
ONE = {"space": {"lr": [0.1]}}
BUDGET = {"space": {"lr": [0.1, 0.2]}, "budget": {"units": 8}}
UNITS = {"method": "asha", "num": 9, "resource": "units", "space": {"lr": {"uniform": [0, 1]}}}


@pytest.mark.parametrize(
    ("data", "more", "partitions", "why"),
    [
        ({"source": "a:load"}, {}, 1, "1 partition: each node has room for all rows"),
        ({"dataset": "a:Photos"}, {"nodes": "auto"}, 1, "each node has room for all rows"),
        ({"source": "a:load"}, {"search": THREE, "epochs": 1}, 2, "2 partitions: each node has room"),
        ({"source": "a:load"}, {"validation": {"folds": 5}}, 5, "5 partitions: each node has room"),
        ({"source": "small.csv"}, {}, 1, "each node has room for all rows"),
        ({"source": "*.csv"}, {}, 4, "the rows have 4e+12 bytes"),
        ({"source": "."}, {}, 4, "the rows have 4e+12 bytes"),
        ({"source": "/nowhere/*.csv"}, {}, 4, "how many bytes the rows have is not known"),
        ({"source": "large.csv"}, {}, 4, "4 partitions: the rows have 4e+12 bytes, and a node has room for"),
        ({"source": "s3://bucket/*.parquet"}, {"nodes": 6}, 12, "how many bytes the rows have is not known"),
        ({"source": "a:load"}, {"node": {"cache_bytes": "1G"}}, 4, "node.cache_bytes bounds a"),
        ({"source": "a:load"}, {"search": UNITS}, 4, "the search counts units"),
        ({"source": "a:load"}, {"search": BUDGET}, 4, "the search counts units"),
        ({"dataset": "a:Photos", "workers": 1}, {}, 4, "rows take long to open"),
        ({"source": "a:load"}, {"replicas": 1}, 4, "`replicas` says how many nodes keep each row"),
        ({"source": "large.csv"}, {"validation": {"folds": 3}}, 6, "the rows have 4e+12 bytes"),
        ({"source": "a:load"}, {"search": ONE, "epochs": 1}, 1, "each node has room for all rows"),
    ],
)
def test_where_there_is_room_each_node_has_all_rows(
    tmp_path: Path, data: dict[str, Any], more: dict[str, Any], partitions: int, why: str
) -> None:
    (tmp_path / "small.csv").write_text("x,y\n1,2\n")
    with (tmp_path / "large.csv").open("wb") as file:
        file.truncate(4 * 10**12)
    number, replicas, text = chosen(tmp_path, data, **more)
    assert number == partitions
    assert why in text
    assert (replicas == MOST_NODES) == ("each node has room" in text)


def test_a_number_is_taken_as_it_is(tmp_path: Path) -> None:
    assert chosen(tmp_path, {"source": "a:load", "partitions": 3}) == (3, 1, "")
    assert chosen(tmp_path, {"url": "prepared"})[2] == "", "the dataset has a number"


def test_the_choice_is_made_again_for_another_number_of_nodes() -> None:
    recipe = load_recipe({**RECIPE, "search": THREE, "epochs": 1, "nodes": 3})
    assert recipe.data.partitions == 1
    assert load_recipe(recipe, nodes=2).data.partitions == 2


def test_a_run_that_continues_keeps_what_was_chosen() -> None:
    recipe = load_recipe(RECIPE)
    assert (recipe.data.partitions, recipe.replicas) == (1, MOST_NODES)
    recorded = load_recipe(RECIPE, data={"partitions": 4})  # as before there was a choice
    assert load_recipe_of(recorded.resolved(), recipe) == recorded
    assert load_recipe_of(recipe.resolved(), recipe) == recipe
    changed = load_recipe(RECIPE, data={"partitions": 3})
    assert load_recipe_of(recorded.resolved(), changed) == changed, "what the recipe names stays"
