"""Evaluations as units of their own, live."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import cerebro_elastic
from cerebro_elastic.core.history.progress import advance
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.units import Phase
from cerebro_elastic.registry import import_object
from cerebro_elastic.runs.results.replay import replay
from cerebro_elastic.runs.results.verify import verify
from cerebro_elastic.training.unit_runner import UnitRunner
from support.prepared import prepare

RECIPE = """
seed: 3
epochs: 2
nodes: 2
task: {kind: torch, model_fn: "a_model:model", loss: cross_entropy, optimizer: SGD,
       metrics: {accuracy: accuracy}}
data: {url: "%s", batch_size: 32}
validation: evaluate
search: {space: {lr: [0.1, 0.03]}}
objective: {metric: val_accuracy, mode: max}
"""

MODEL = """
from torch import nn


def model():
    return nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 10))
"""


@pytest.mark.cluster
@pytest.mark.usefixtures("imports_as_found")
def test_evaluations_as_units_give_the_metrics_of_validation_at_the_epochs_end(project: Path) -> None:
    """Two validation partitions of different size, on whichever node is free."""
    (project / "a_model.py").write_text(MODEL)
    (project / "evaluated.yaml").write_text(RECIPE % (project / "evaluated"))
    source = import_object("a_dataset:load", project)
    prepare(source, str(project / "evaluated"), partitions=2, seed=3, valid=0.2, valid_partitions=2)
    result = cerebro_elastic.run(project / "evaluated.yaml", run_id="evaluated", home=project / "runs")
    assert [row.status for row in result.leaderboard] == ["finished"] * 2
    assert verify(result) == []
    assert all(visit.same for visit in replay(result))

    plan = replace(result.spec.plan, evaluations=0)
    bench = UnitRunner(replace(result.spec, plan=plan), result.folder.cache, "cpu")
    for row in result.leaderboard:
        at, state, curve = Config(row.config, row.hparams), None, []
        assert len(row.visits) == 2 * (2 + 2)
        for visit in (v for v in row.visits if v.unit.phase is Phase.TRAIN):
            done = bench.perform(bench.job(at, visit.unit, state))
            if len(at.visited) == 1:
                curve.append(done.metrics)
            at, state = advance(at, visit, plan), done.state
        assert [dict(metrics) for metrics in row.curve] == [pytest.approx(dict(m), rel=1e-5) for m in curve]
