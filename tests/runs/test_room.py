"""Is there room for a run's processes?"""

from __future__ import annotations

from typing import Any

import pytest

from cerebro_elastic.errors import RecipeError
from cerebro_elastic.recipes import Recipe, load_recipe
from cerebro_elastic.runs.start.machine import Accelerators
from cerebro_elastic.runs.start.room import check_room

NONE, FOUR = Accelerators(), Accelerators("cuda", ("0", "1", "2", "3"), "H100")


def recipe(**sections: Any) -> Recipe:
    task = {"kind": "torch", "model_fn": "a:b", "loss": "mse_loss", "optimizer": "SGD"}
    data = {"source": "a:load", "partitions": 4, **sections.pop("data", {})}
    return load_recipe({"task": task, "data": data, "search": {"space": {"lr": [0.1]}}, **sections})


@pytest.mark.parametrize(
    ("sections", "text"),
    [
        (
            {"nodes": 500},
            "500 nodes with 1 rank are 500 processes, and this machine has 2 cores: use at most 32",
        ),
        ({"node": {"ranks": 100}}, "1 node with 100 ranks are 100 processes"),
        (
            {"nodes": 2, "data": {"workers": 40}},
            "2 nodes with 1 rank and 40 workers for each are 82 processes",
        ),
    ],
)
def test_more_processes_than_a_machine_bears_are_refused(sections: dict[str, Any], text: str) -> None:
    checked = recipe(**sections)
    with pytest.raises(RecipeError, match=text):
        check_room(checked, checked.nodes.min, 2, NONE)
    assert not any("share" in note for note in check_room(checked, checked.nodes.min, 512, NONE))


def test_nodes_that_share_cores_or_have_no_partition_are_noted() -> None:
    assert check_room(recipe(), 2, 2, NONE) == []
    assert check_room(recipe(), 4, 2, FOUR) == []
    shared, idle = check_room(recipe(), 6, 2, NONE)
    assert shared == "6 nodes share 2 cores, so each trains more slowly"
    assert idle.startswith("2 nodes of 6 will have no partition")
    assert len(check_room(recipe(replicas=2), 6, 2, NONE)) == 1
