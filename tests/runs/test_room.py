"""Is there room for a run's processes?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.errors import CerebroError, RecipeError
from cerebro_elastic.recipes import Recipe, load_recipe
from cerebro_elastic.runs.start import room
from cerebro_elastic.runs.start.host import host
from cerebro_elastic.runs.start.join import node_names
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


def test_a_machine_that_takes_part_names_its_option(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(room, "cores_here", lambda: 2)
    monkeypatch.chdir(tmp_path)
    Path("a.py").write_text("b = load = None")
    assert room.check_part(recipe(), 4, NONE) == ["4 nodes share 2 cores, so each trains more slowly"]
    for nodes, text in (
        (500, "nodes.?: 500 nodes with 1 rank"),
        (0, "is 0: a machine has"),
        (10**12, "from 1 to 1000"),
    ):
        with pytest.raises(CerebroError, match=text):
            host(recipe(), nodes=nodes, home=tmp_path, store=StoreSettings.at("127.0.0.1:1"))
    with pytest.raises(CerebroError, match="from 1 to 1000 nodes"):
        node_names(10**12)
