"""A run whose units take gangs of two nodes, and what a replay of it makes."""

from __future__ import annotations

from pathlib import Path

import pytest

import cerebro_elastic
from cerebro_elastic.core.model.units import Strategy
from cerebro_elastic.runs.results.replay import replay
from cerebro_elastic.runs.results.verify import verify

pytestmark = pytest.mark.cluster

MODEL = """
from torch import nn


def model(width):
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 10))
"""

RECIPE = """
seed: 3
epochs: 1
nodes: 2
gang: 2
parallelism: fsdp
task: {kind: torch, model_fn: "a_wide_model:model", loss: cross_entropy, optimizer: AdamW,
       metrics: {accuracy: accuracy}}
data: {source: "a_dataset:load", partitions: 2, batch_size: 50}
search: {space: {lr: [0.01], width: [16, 32]}}
objective: {metric: val_accuracy, mode: max}
"""


@pytest.mark.usefixtures("imports_as_found")
def test_a_run_on_a_gang_and_its_replay(project: Path) -> None:
    (project / "a_wide_model.py").write_text(MODEL)
    (project / "gang.yaml").write_text(RECIPE)
    result = cerebro_elastic.run(project / "gang.yaml", run_id="gang", home=project / "runs")
    assert [row.status for row in result.leaderboard] == ["finished"] * 2
    for row in result.leaderboard:
        assert row.curve[-1]["val_accuracy"] > 0.5
        assert {(visit.strategy, len(visit.nodes)) for visit in row.visits} == {(Strategy("fsdp", 2, 2), 2)}
    assert verify(result) == []
    again = list(replay(result, result.leaderboard[0].config))
    assert [visit.same for visit in again] == [True, True]
