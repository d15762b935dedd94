"""Results with the names of Ray Tune's."""

from __future__ import annotations

import math
from typing import Any

import pytest

from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.units import CheckpointRef
from cerebro_elastic.recipes import Objective
from cerebro_elastic.reporting.results import ConfigResult
from cerebro_elastic.runs.results.result_grid import ResultGrid

ACCURACIES = {
    "c0000": [0.2, 0.9, 0.5],
    "c0001": [0.4, 0.6, 0.7, 0.6, 0.6, 0.6, 0.6],
    "c0002": [0.1, math.nan],
    "c0003": [],
}
STATUS = {"c0000": Status.FINISHED, "c0001": Status.STOPPED, "c0002": Status.LIVE, "c0003": Status.FAILED}
REF = CheckpointRef("file:///checkpoint", "0" * 64, 1)


def row(name: str) -> ConfigResult:
    curve = [{"acc": acc, "loss": 1 - acc} for acc in ACCURACIES[name]]
    best = max(range(len(curve)), key=lambda n: curve[n]["acc"], default=None)
    reason = "it has no data" if STATUS[name] is Status.FAILED else ""
    hparams = {"lr": int(name[1:]) / 10}
    return ConfigResult(
        name, hparams, STATUS[name], reason, curve, (), best, checkpoint=REF, best_checkpoint=REF, behind=2
    )


@pytest.fixture
def grid() -> ResultGrid:
    return ResultGrid("tuned", [row(name) for name in ACCURACIES], Objective(metric="acc", mode="max"))


@pytest.mark.parametrize(
    ("metric", "mode", "scope", "best"),
    [
        (None, None, "last", "c0001"),
        (None, None, "all", "c0000"),
        (None, None, "avg", "c0001"),
        ("acc", "min", "avg", "c0002"),
        ("loss", "min", "last", "c0001"),
        ("loss", "max", "all", "c0002"),
        ("acc", "max", "last-5-avg", "c0001"),
        ("acc", "max", "last-10-avg", "c0001"),
    ],
)
def test_the_best_by_each_scope(grid: ResultGrid, metric: Any, mode: Any, scope: str, best: str) -> None:
    found = grid.get_best_result(metric, mode, scope)
    assert found.metrics["trial_id"] == best
    assert found.config == {"lr": int(best[1:]) / 10}


def test_the_fields_of_a_result(grid: ResultGrid) -> None:
    best = grid.get_best_result()
    assert best.metrics["training_iteration"] == 9, "two epochs are its parent's"
    assert best.metrics["done"]
    assert best.metrics["acc"] == 0.6
    assert best.checkpoint == REF
    assert best.best_checkpoints == [(REF, {"acc": 0.7, "loss": 1 - 0.7})]
    assert best.metrics_dataframe["acc"].tolist() == ACCURACIES["c0001"]
    assert best.metrics_dataframe["config/lr"].tolist() == [0.1] * 7
    assert (len(grid), grid.num_errors, grid.num_terminated) == (4, 1, 2)
    assert [str(error) for error in grid.errors] == ["config c0003: it has no data"]
    assert [result.metrics["done"] for result in grid] == [True, True, False, True]
    assert grid[3].error is not None
    assert grid[3].metrics_dataframe.empty


def test_a_table_has_a_row_for_each_config(grid: ResultGrid) -> None:
    table = grid.get_dataframe()
    assert table["trial_id"].tolist() == list(ACCURACIES)
    assert table["config/lr"].tolist() == [0.0, 0.1, 0.2, 0.3]
    assert table["acc"].tolist()[:2] == [0.5, 0.6]
    best = grid.get_dataframe("acc", "max")
    assert best["acc"].tolist()[:3] == [0.9, 0.7, 0.1]
    assert best["training_iteration"].tolist() == [4, 5, 3, 2]
