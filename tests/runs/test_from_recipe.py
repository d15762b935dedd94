"""From a recipe's parallelism to the choices of the plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cerebro_elastic import registry
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.runs.from_recipe import strategies

MINIMAL: dict[str, Any] = {
    "task": {"kind": "torch", "model_fn": "m:f", "loss": "mse_loss"},
    "data": {"source": "x.npz"},
    "search": {"space": {"lr": 0.1}},
}


@pytest.mark.parametrize(
    ("change", "labels"),
    [
        ({}, ["single"]),
        ({"parallelism": "ddp", "node": {"ranks": 2}}, ["ddp x2"]),
        ({"parallelism": "ddp", "gang": 2}, ["ddp x2 over 2 nodes"]),
        (
            {"parallelism": ["single", {"use": "fsdp", "ranks": 2, "offload": True}, "ddp"], "gang": 2},
            ["single", "fsdp x2 offload=True over 2 nodes", "ddp x2 over 2 nodes"],
        ),
        (
            {"parallelism": ["ddp", {"use": "fsdp", "ranks": 2}], "node": {"ranks": 2}, "gang": 2},
            ["ddp x4 over 2 nodes", "fsdp x2"],
        ),
        ({"parallelism": "auto"}, ["single"]),
    ],
)
def test_choices_are_the_recipes(change: dict[str, Any], labels: list[str]) -> None:
    recipe = load_recipe({**MINIMAL, "nodes": 4, **change})
    assert [str(strategy) for strategy in strategies(recipe)] == labels


def test_deepspeeds_json_is_found_from_the_recipes_folder(tmp_path: Path) -> None:
    given = {"use": "deepspeed", "config": "ds.json"}
    (strategy,) = strategies(load_recipe({**MINIMAL, "parallelism": given}, root=tmp_path))
    assert strategy.options == {"config": str(tmp_path / "ds.json")}
    inline = {"use": "deepspeed", "config": {"zero_optimization": {"stage": 1}}}
    (strategy,) = strategies(load_recipe({**MINIMAL, "parallelism": inline}))
    assert strategy.options == {"config": {"zero_optimization": {"stage": 1}}}


def test_auto_is_all_that_is_installed_on_one_node_and_on_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.BUILT_IN, "cerebro.parallel", {"single": "", "ddp": ""})
    recipe = load_recipe({**MINIMAL, "parallelism": "auto", "node": {"ranks": 2}, "gang": 2, "nodes": 2})
    one_node = ["ddp x2", "deepspeed x2 stage=2", "pipeline x2"]
    two_nodes = [f"{label.replace('x2', 'x4')} over 2 nodes" for label in one_node]
    assert [str(strategy) for strategy in strategies(recipe)] == ["single", *one_node, *two_nodes]
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    without = ["single", *(label for label in one_node + two_nodes if "deepspeed" not in label)]
    assert [str(strategy) for strategy in strategies(recipe)] == without


def test_auto_begins_with_the_simple_ones() -> None:
    recipe = load_recipe({**MINIMAL, "parallelism": "auto", "node": {"ranks": 2}})
    names = [strategy.parallelism for strategy in strategies(recipe)]
    assert names == ["single", "ddp", "fsdp", "deepspeed", "pipeline"]
