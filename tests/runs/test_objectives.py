"""Several objectives, constraints on measured metrics: one run with all of them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import pytest
import recorded_run

from cerebro_elastic import ConfigResult, RunError, RunResult
from cerebro_elastic.cli.output import outcome_json
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.recipes import Objective
from cerebro_elastic.reporting.results import front, not_compared
from cerebro_elastic.runs.results.verify import verify

RATES = [0.001, 0.003, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5]
OBJECTIVES = [{"metric": "val_loss", "mode": "min"}, {"metric": "train_loss", "mode": "max"}]


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return recorded_run.record(
        tmp_path_factory.mktemp("home"),
        epochs=1,
        search={"space": {"lr": RATES}},
        objective=OBJECTIVES,
        constraint={"metric": "train_loss", "below": 0.68},
    )


def test_the_best_epoch_is_one_within_the_constraints(several: RunResult) -> None:
    inside = {
        row.config: [epoch for epoch in row.curve if epoch["train_loss"] < 0.68]
        for row in several.leaderboard
    }
    assert 0 < sum(map(bool, inside.values())) < len(RATES), "the bound divides the configs"
    for row in several.leaderboard:
        best = min((epoch["val_loss"] for epoch in inside[row.config]), default=None)
        assert row.best == best
    assert several.best.best == min(epoch["val_loss"] for epochs in inside.values() for epoch in epochs)


def test_the_front_is_in_the_result_the_json_and_the_report(several: RunResult) -> None:
    found = [row.config for row in several.front]
    assert several.best.config in found
    assert outcome_json(several)["front"] == found
    assert verify(several) == []
    page = several.folder.report.read_text()
    assert '"front":{"objectives":[["val_loss","min"],["train_loss","max"]],"rows":[{"config":' in page


def row(name: str, *values: float) -> ConfigResult:
    curve = [{"a": values[0], "b": values[1]} if len(values) > 1 else {"a": values[0]}]
    return ConfigResult(name, {}, Status.FINISHED, "", curve, [], best_place=0, best=values[0])


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([row("x", 1, 5), row("y", 2, 9), row("z", 2, 3)], ["x", "y"]),
        ([row("x", 1, 5), row("y", 1, 5)], ["x", "y"]),
        ([row("x", 1, 5), row("y", 1, 6), row("z", 9)], ["y"]),
        ([row("x", 1, math.nan)], []),
        ([], []),
    ],
)
def test_no_config_of_the_front_is_surpassed(rows: Sequence[ConfigResult], expected: list[str]) -> None:
    objectives = [Objective(metric="a"), Objective(metric="b", mode="max")]
    assert [each.config for each in front(rows, objectives)] == expected
    lacking = [each.config for each in rows if len(each.curve[0]) < 2 or math.isnan(each.curve[0]["b"])]
    assert not_compared(rows, objectives) == lacking


def test_a_constraint_that_no_config_meets_names_the_nearest(several: RunResult) -> None:
    strict = several.now()
    changed = {"metric": "val_loss", "constraint": [{"metric": "train_loss", "below": 0.0}]}
    strict.recipe = several.recipe.model_copy(update={"objective": Objective.model_validate(changed)})
    with pytest.raises(RunError, match=r"constraints: train_loss below 0: the nearest is 0\.\d+ of c0"):
        _ = strict.best
    assert json.dumps(outcome_json(strict)["front"]) == "[]"
