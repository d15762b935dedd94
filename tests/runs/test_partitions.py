"""``data.partitions: auto``: one partition on each node where there is room, else several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.recipes.fields import MOST_NODES


def chosen(root: Path, data: dict[str, Any], **more: Any) -> tuple[int, int, str]:
    values = {
        "nodes": 2,
        "epochs": 3,
        "task": {"kind": "torch", "model_fn": "a:b", "loss": "mse_loss"},
        "data": {"partitions": "auto", **data},
        "search": {"space": {"lr": [0.1, 0.2, 0.3, 0.4]}},
        **more,
    }
    recipe = load_recipe(values, root=root)
    assert load_recipe(recipe.resolved(), root=root) == recipe, "the record has the number"
    again = load_recipe(recipe, seed=1)  # as a run does that was given a recipe
    return recipe.data.partitions, recipe.replicas, again.partitions_text


THREE = {"space": {"lr": [0.1, 0.2, 0.3]}}
UNITS = {"method": "asha", "num": 9, "resource": "units", "space": {"lr": {"uniform": [0, 1]}}}


@pytest.mark.parametrize(
    ("data", "more", "partitions", "why"),
    [
        ({"source": "a:load"}, {}, 1, "1 partition: each node has room for all rows"),
        ({"dataset": "a:Photos"}, {"nodes": "auto"}, 1, "each node has room for all rows"),
        ({"source": "a:load"}, {"search": THREE, "epochs": 1}, 2, "2 partitions: each node has room"),
        ({"source": "a:load"}, {"validation": {"folds": 5}}, 5, "5 partitions: each node has room"),
        ({"source": "small.csv"}, {}, 1, "each node has room for all rows"),
        ({"source": "large.csv"}, {}, 4, "4 partitions: the rows have 4e+12 bytes, and a node has room for"),
        ({"source": "s3://bucket/*.parquet"}, {"nodes": 6}, 6, "how many bytes the rows have is not known"),
        ({"source": "a:load"}, {"node": {"cache_bytes": "1G"}}, 4, "node.cache_bytes bounds what"),
        ({"source": "a:load"}, {"search": UNITS}, 4, "the search compares configs within an epoch"),
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
    assert chosen(tmp_path, {"source": "a:load"}, replicas=1)[:2] == (1, 1)
