"""A run's best config is measured on the test set when the run has ended, and never before."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recorded_run

from cerebro_elastic import RunError, RunResult
from cerebro_elastic.core.model.events import ConfigMeasured, RunEnded
from cerebro_elastic.data.manifest import read_manifest
from cerebro_elastic.errors import NoTestSet
from cerebro_elastic.runs.results import test_set
from cerebro_elastic.runs.results.export import export
from cerebro_elastic.runs.results.verify import verify


def here(_module: str, _what: str, request: dict[str, Any], _env: object = None) -> Any:
    """In place of a process of its own."""
    return json.loads(json.dumps(test_set._measure_here(json.loads(json.dumps(request)))))


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(test_set, "call", here)
        return recorded_run.record(tmp_path_factory.mktemp("home"), test=0.25)


def test_the_winner_is_measured_once_at_the_end_by_the_run_itself(measured: RunResult) -> None:
    best, others = measured.best, [row for row in measured.leaderboard if row is not measured.best]
    assert [row.test for row in others] == [None] * len(others)
    found = best.test
    assert found is not None
    assert (found.config, found.epoch, found.rows) == (best.config, best.best_epoch, 6)
    assert found.checkpoint == best.best_checkpoint
    low, high = found.intervals["test_loss"]
    assert low < found.metrics["test_loss"] < high
    kinds = [type(event) for event in measured.events]
    assert kinds.count(ConfigMeasured) == 1
    assert kinds.index(ConfigMeasured) > kinds.index(RunEnded)
    folder = Path(measured.spec.data)
    seen = {split: np.concatenate([np.load(file) for file in sorted(folder.glob(f"{split}/*/x.npy"))])
            for split in ("train", "valid", "test")}  # fmt: skip
    assert [len(rows) for rows in seen.values()] == [13, 5, 6]
    assert len(np.unique(np.concatenate(list(seen.values())), axis=0)) == 24


def test_report_card_and_verify_know_the_measurement(measured: RunResult, tmp_path: Path) -> None:
    assert verify(measured) == []
    assert '"tests":[{"config":"' in measured.folder.report.read_text()
    export(measured, tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text()
    assert "| metric on the test set of 6 rows | value | 95 % interval |" in card
    assert json.loads((tmp_path / "model" / "record.json").read_text())["test"]["rows"] == 6
    again = test_set.measure_best(measured, 1, "")
    assert again == [measured.best.test], "a model that was measured is not again"


def test_what_cannot_be_measured_is_refused_by_name(
    measured: RunResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    for top in (0, 3):
        with pytest.raises(RunError, match=f"top is {top}: .* give a number from 1 to 2"):
            test_set.measure_best(measured, top, "")
    ends = [type(line.event) for line in measured.lines].index(RunEnded)
    with pytest.raises(RunError, match="has not ended, and nobody looks at its test set before"):
        test_set.measure_best(measured.upto(ends), 1, "")
    manifest = read_manifest(measured.spec.data)
    monkeypatch.setattr(test_set, "manifest_of", lambda _spec: replace(manifest, test=()))
    with pytest.raises(NoTestSet, match=r"no test set: .* prepare it with `--test 10%`"):
        test_set.measure_best(measured, 1, "")
