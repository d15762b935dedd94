"""Is there room for a run's processes?"""

from __future__ import annotations

from typing import Any

import pytest

from cerebro_elastic.errors import RecipeError
from cerebro_elastic.recipes import Recipe, load_recipe
from cerebro_elastic.runs.start.room import check_room


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
        check_room(checked, checked.nodes.min, cores=2, gpus=0)
    assert not any("share" in note for note in check_room(checked, checked.nodes.min, cores=512, gpus=0))


def test_nodes_that_share_cores_or_have_no_partition_are_noted() -> None:
    assert check_room(recipe(), 2, cores=2, gpus=0) == []
    assert check_room(recipe(), 4, cores=2, gpus=4) == []
    shared, idle = check_room(recipe(), 6, cores=2, gpus=0)
    assert shared == "6 nodes share 2 cores, so each trains more slowly"
    assert idle.startswith("2 nodes of 6 will have no partition")
    assert len(check_room(recipe(replicas=2), 6, cores=2, gpus=0)) == 1
