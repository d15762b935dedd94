"""A model that does not fit what a unit may take on a rank, live: under `auto` it is trained all the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import cerebro_elastic
from cerebro_elastic.cli.app import app
from cerebro_elastic.runs.results.verify import verify
from cerebro_elastic.worker.resources import LIMIT

pytestmark = pytest.mark.cluster

MODEL = """
import numpy as np
from torch import nn


def model(width, depth):
    blocks = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(depth)]
    return nn.Sequential(nn.Linear(64, width), *blocks, nn.Linear(width, 10))


def data():
    random = np.random.default_rng(0)
    return {"x": random.normal(size=(256, 64)).astype(np.float32), "y": random.integers(10, size=256)}
"""

RECIPE = """
epochs: 1
nodes: 1
node: {ranks: 2}
parallelism: auto
task: {kind: torch, model_fn: "a_large_model:model", loss: cross_entropy, optimizer: AdamW}
data: {source: "a_large_model:data", partitions: 1, valid: 0, batch_size: 32}
search: {space: {lr: [0.001], width: [800], depth: [16]}}
objective: {metric: train_loss}
"""
"""41 MB of parameters: with gradients and AdamW's two slots 165 MB, and a bit more than half of that on each
of two ranks that divide it."""

CAP = "164M"
WHOLE = "a rank holds at least 165 MB of parameters, gradients and optimizer state, and has 164 MB for them"


@pytest.mark.usefixtures("imports_as_found")
def test_a_model_that_fits_no_rank_is_trained_over_two(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LIMIT, CAP)
    (project / "a_large_model.py").write_text(MODEL)
    (project / "large.yaml").write_text(RECIPE)
    result = cerebro_elastic.run(project / "large.yaml", run_id="large", home=project / "runs")

    said = CliRunner().invoke(app, ["status", str(result.folder.path), "--json"])
    table = {row["strategy"]: row for row in json.loads(said.stdout)["profiles"]}
    assert list(table) == ["single", "ddp x2", "fsdp x2", "deepspeed x2 stage=2", "pipeline x2"]
    for strategy in ("single", "ddp x2"):
        assert table[strategy]["refusal"].startswith(WHOLE), "before a batch is trained"
    # On a CPU fsdp and deepspeed fit or not by what the allocator makes of the tensors that they gather.
    for row in table.values():
        assert (row["refusal"] is None) == (row["seconds"] is not None and row["bytes"] <= 164e6), row
        assert row["refusal"] is None or "MB" in row["refusal"]
    assert any(table[c]["refusal"] is None for c in ("fsdp x2", "deepspeed x2 stage=2", "pipeline x2"))

    (config,) = result.leaderboard
    assert config.status == "finished"
    (used,) = (strategy for strategy, row in table.items() if row["used"])
    assert [str(visit.strategy) for visit in config.visits] == [used]
    assert verify(result) == []
