"""Configs that are trained on folds, or with several seeds: real units, results, and what is made of them."""

from __future__ import annotations

import re
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from recorded_run import record

from cerebro_elastic.core.model.units import Phase
from cerebro_elastic.registry import import_object
from cerebro_elastic.runs.results.export import export
from cerebro_elastic.runs.results.replay import compare_results, replay
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.runs.results.verify import verify

FOLDS = {"folds": 3, "early_stop": False}
MODEL = """
import torch
from torch import nn


def model(lr):
    net = nn.Sequential(nn.Linear(2, 4), nn.Dropout(0.5), nn.Linear(4, 2))
    return net, torch.optim.AdamW(net.parameters(), lr=lr)
"""


@pytest.fixture(scope="module")
def folded(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return record(
        tmp_path_factory.mktemp("folds"),
        partitions=3,
        valid=0.0,
        model=MODEL,
        task={"kind": "torch", "model_fn": "a_recorded_model:model", "loss": "cross_entropy"},
        validation=FOLDS,
        repeats=2,
        search={"space": {"lr": [0.1]}},
    )


@pytest.mark.parametrize(("name", "repeat"), [("c0000.f1.r0", 0), ("c0000.f2.r1", 1)])
def test_a_fold_is_bit_for_bit_the_plain_loop_of_the_page(folded: RunResult, name: str, repeat: int) -> None:
    row, page = folded.configs[name], (Path(__file__).parents[2] / "docs/how-to/folds.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    for theirs, ours in {
        'Run.open("folds").result, "c0000.f1", 0': f"folded, {name!r}, {repeat}",
        "my_torch": "a_recorded_model",
        '"label"': '"y"',
        "split(32)": "split(3)",
    }.items():
        assert theirs in code
        code = code.replace(theirs, ours)
    known: dict[str, Any] = {"folded": folded}
    import_object("a_recorded_model:model", folded.recipe.root)
    exec(code, known)

    net = known["net"].eval()
    held_out = {visit.unit.partition for visit in row.visits if visit.unit.phase is Phase.EVALUATE}
    assert held_out == set(folded.spec.plan.held_out(int(name[7])))
    folders = [Path(folded.spec.data) / f"train/{j:05d}" for j in sorted(held_out)]
    x, y = (torch.from_numpy(np.concatenate([np.load(f / f"{c}.npy") for f in folders])) for c in "xy")
    with torch.no_grad():
        mean = float(torch.nn.functional.cross_entropy(net(x), y))
    assert row.curve[-1]["val_loss"] == pytest.approx(mean, rel=1e-5)


def test_a_config_is_shown_as_the_mean_of_its_trainings(folded: RunResult) -> None:
    (row,) = folded.leaderboard
    assert [each.config for each in row.members] == [
        f"c0000.f{fold}.r{repeat}" for repeat in (0, 1) for fold in (0, 1, 2)
    ]
    assert row.best_place is not None
    values = [each.curve[row.best_place]["val_loss"] for each in row.members]
    assert row.scores == values
    assert row.best == pytest.approx(statistics.mean(values))
    assert row.std == pytest.approx(statistics.stdev(values))
    assert len(set(values)) == 6, "other seeds, and other folds, give other values"
    assert f"± {row.std:.2g} (6)" in row.best_text
    best = min(row.members, key=lambda each: each.best or 9.0)
    assert folded.training("best") == best
    assert folded.folder.report.stat().st_size


def test_verify_and_replay_hold(folded: RunResult) -> None:
    assert verify(folded) == []
    replayed = list(replay(folded, "c0000"))
    assert len(replayed) == len(folded.view.log)
    assert all(visit.same for visit in replayed)
    assert list(compare_results(folded, "c0000", replayed)) == []


def test_an_export_says_which_rows_its_model_has_not_seen(folded: RunResult, tmp_path: Path) -> None:
    exported = export(folded, tmp_path / "model")
    assert exported.row == folded.training("best")
    assert any("rows of fold" in text and "of 3" in text for text in exported.not_carried)
