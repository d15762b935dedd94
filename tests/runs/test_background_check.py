"""The check beside the start of a run, without the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.state import State
from cerebro_elastic.errors import TaskError
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.runs.exactness.outcome import (
    CheckedConfig,
    CheckOutcome,
    Exactness,
    known,
    why_unlogged,
    why_untrainable,
)
from cerebro_elastic.runs.folder import run_folder
from cerebro_elastic.runs.start import background_check
from cerebro_elastic.runs.start.background_check import BackgroundCheck
from cerebro_elastic.runs.start.preflight import VARIABLE

NET = """
import os

import torch
from torch import nn


class Counting(nn.Linear):
    def forward(self, input):
        os.environ["CALLS"] = str(int(os.environ.get("CALLS", "0")) + 1)
        return super().forward(input) * (1 + 0.01 * int(os.environ["CALLS"]))


def model(kind):
    if kind == "broken":
        return nn.Sequential(nn.Linear(3, 2))
    return (Counting if kind == "counting" else nn.Linear)(4, 2)


def load():
    x = torch.randn(60, 4, generator=torch.Generator().manual_seed(1))
    return {"x": x.numpy(), "y": (x[:, 0] > 0).long().numpy()}
"""

RECIPE: Mapping[str, Any] = {
    "name": "beside",
    "task": {"kind": "torch", "model_fn": "a_net_beside:model", "loss": "cross_entropy", "optimizer": "SGD"},
    "data": {"source": "a_net_beside:load", "partitions": 2, "batch_size": 5},
    "search": {"space": {"kind": ["plain", "counting"]}},
}
POINTS = [{"kind": "plain"}, {"kind": "counting"}]


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.delenv(VARIABLE)
    return []


@pytest.mark.timeout(600)  # the check takes the time that others leave
def test_errors_are_reported_while_the_run_starts_or_once_it_is_over(
    tmp_path: Path, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_net_beside.py").write_text(NET)
    folder = run_folder("beside", tmp_path / "runs")
    recipe = load_recipe(RECIPE, root=tmp_path)
    typo = load_recipe({**RECIPE, "objective": {"metric": "val_los"}}, root=tmp_path)
    with folder.locked(), BackgroundCheck(folder, lines.append) as beside:
        with pytest.raises(TaskError, match=r"metric is 'val_los', which is not.*did you mean 'val_loss'"):
            beside.preflight(typo, POINTS, str(folder.data), prepare=True)
        with pytest.raises(
            TaskError, match=r"^torch/.*\nRuntimeError: mat1 and mat2 .*\n.*kind=broken. Nothing was st"
        ):
            beside.preflight(recipe, [{"kind": "broken"}], str(folder.data), prepare=True)
        broken = beside.preflight(recipe, [*POINTS, {"kind": "broken"}], str(folder.data), prepare=True)
        (note,) = broken.notes
        assert "in the first batches of kind=broken" in note
        found = beside.preflight(recipe, POINTS, str(folder.data), prepare=True)
        assert (found.partitions, found.notes) == (2, [])
        monkeypatch.setattr(background_check, "_SHARE", 1e9)
        monkeypatch.setattr(background_check, "_MOST_SECONDS", 540.0)
        beside.wait()
        assert not beside.goes_on
        assert [each.exactness.outcome for each in known(folder)] == [
            CheckOutcome.EQUAL,
            CheckOutcome.DIFFERS,
        ]
        over, line = lines
        assert over == "waiting for the check of the first units, 540.0 s at most"
        assert line.startswith("check of kind=counting: units do not equal one ordinary fit")
        # What the run has shown since goes before it, and a person may want to be stopped.
        trained = State(configs={"c0": replace(Config("c0", {}), epoch=1, metrics={"val_los": 0.5})})
        beside.recipe = typo
        with pytest.raises(TaskError, match="metric is 'val_los'"):
            beside.conclude(State())
        beside.conclude(trained)
        beside.recipe = load_recipe({**RECIPE, "check": "stop"}, root=tmp_path)
        with pytest.raises(TaskError, match="check: stop"):
            beside.conclude(trained)


def test_a_run_ends_for_nothing_less_than_all_configs() -> None:
    bad = CheckedConfig({}, Exactness(CheckOutcome.FAILED, "why"))
    good = CheckedConfig({}, Exactness(CheckOutcome.EQUAL, compared={"weight": 1}, logged=["val_loss"]))
    assert why_untrainable([bad, bad]) == "why"
    assert why_untrainable([bad, good]) is None
    assert why_untrainable([]) is None
    recipe = load_recipe({**RECIPE, "objective": {"metric": "val_loss"}})
    assert why_unlogged(recipe, [bad, good]) is None
    assert why_unlogged(recipe, [bad]) is None, "nothing is known"
    assert "val_loss" in (
        why_unlogged(load_recipe({**RECIPE, "objective": {"metric": "val_los"}}), [good]) or ""
    )
    later = {
        **RECIPE,
        "task": {"kind": "lightning", "module": "a:B", "trainer": {"check_val_every_n_epoch": 5}},
    }
    assert why_unlogged(load_recipe(later), [good]) is None, "the check did not come to a validation"
