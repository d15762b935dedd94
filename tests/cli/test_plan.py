"""``cerebro plan``, as users type it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.commands import Cerebro, assert_shape

TORCH = """\
epochs: 3
task: {kind: torch, model_fn: "a_torch_net:model", loss: cross_entropy, optimizer: SGD}
data: {source: "a_users_data:load", partitions: 2, valid: 0.2, batch_size: 4}
search: {space: {lr: [0.01, 0.001], width: [16, 64]}}
"""

MODEL = """
from torch import nn


def model(width):
    return nn.Sequential(nn.Linear(4, width), nn.Linear(width, 2))
"""


@pytest.fixture
def planned(cerebro: Cerebro, project: Path) -> Cerebro:
    (project / "a_torch_net.py").write_text(MODEL)
    (project / "torch.yaml").write_text(TORCH)
    return lambda *words: cerebro("plan", "torch.yaml", *words)


def test_the_forecast_for_people_and_as_json(planned: Cerebro, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text and the JSON are two views of one forecast."""
    from cerebro_elastic.runs.forecast import plan as module

    forecasts: list[Any] = []
    forecast = module.plan
    monkeypatch.setattr(
        module, "plan", lambda *a, **k: (forecasts.append(forecast(*a, **k)), forecasts[0])[1]
    )
    said = planned("--nodes", "1,2,8", "--price", "2")
    assert said.code == 0, said.err
    assert "trying 4 of 4 configs on this machine" in said.err
    assert "torch: 4 configs, up to 3 epochs of 16 rows" in said.out
    assert "single" in said.out
    assert "nodes would be idle: 2 partitions for 8 units at a time" in said.out
    assert "Decentralized fine-grained" in said.out
    assert "Best in time times cost: nodes: " in said.out
    table = said.out.split("\n\n")[1]
    assert all(len(line) <= 80 for line in table.splitlines()), "it fits a narrow terminal"
    monkeypatch.setattr(module, "plan", lambda *_a, **_k: forecasts[0])
    printed = planned("--price", "2", "--json").out
    assert_shape("plan", printed)
    answer = json.loads(printed)["measured"]
    assert (answer["configs"], answer["rows"]) == (4, 16)
    assert answer["best"] in answer["options"]
    for option in answer["options"]:
        assert option["cost"] == pytest.approx(2 * option["node_hours"])
        assert option["seconds"] > 0
        assert option["memory"] >= 0
    assert {profile["config"] for profile in answer["profiles"]} == {f"c{i:04d}" for i in range(4)}
    assert all(profile["state"] > 0 for profile in answer["profiles"])
    assert answer["traffic"]["Model Hopper Parallelism"] > 0


def test_partitions_of_a_prepared_dataset_are_settled(
    cerebro: Cerebro, planned: Cerebro, project: Path
) -> None:
    assert cerebro("prepare", "a_users_data:load", "prepared", "--partitions", "2").code == 0
    source = 'source: "a_users_data:load", partitions: 2, valid: 0.2'
    (project / "torch.yaml").write_text(TORCH.replace(source, "url: prepared"))
    said = planned("--partitions", "4")
    assert said.code == 2
    assert "the dataset prepared has 2 partitions, which is settled" in " ".join(said.err.split())
