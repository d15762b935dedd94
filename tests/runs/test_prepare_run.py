"""The paths in the spec of a new run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cerebro_elastic.errors import StorageError
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.runs.folder import run_folder
from cerebro_elastic.runs.start import prepare_run
from cerebro_elastic.runs.start.prepare_data import prepare
from cerebro_elastic.runs.start.prepare_run import new_spec
from cerebro_elastic.runs.terminal_view import Watcher

RECIPE = """
task: {kind: torch, model_fn: "torch.nn:Linear", args: {in_features: 2, out_features: 2},
       loss: cross_entropy, optimizer: SGD}
data: {url: digits/}
checkpoints: kept/
search: {space: {lr: [0.1]}}
"""


def test_paths_start_in_the_recipes_folder_and_runs_keep_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, elsewhere = tmp_path / "a project", tmp_path / "elsewhere"
    project.mkdir()
    elsewhere.mkdir()
    np.savez(project / "rows.npz", x=np.zeros((8, 2), np.float32), y=np.zeros(8, np.int64))
    prepare("rows.npz", str(project / "digits"), partitions=2, seed=0, valid=0.25, labels=(), root=project)
    (project / "recipe.yaml").write_text(RECIPE)
    monkeypatch.chdir(elsewhere)
    folder = run_folder("a-run", elsewhere / "runs")
    with folder.locked():
        spec = new_spec(folder, load_recipe(project / "recipe.yaml"), Watcher())
    assert spec.data == str(project / "digits")
    assert spec.storage == str(project / "kept" / "a-run"), "checkpoints have the same names in every run"
    assert (project / "kept" / "a-run").is_dir()

    def no_answer(*_: object) -> None:
        raise StorageError("no answer")

    monkeypatch.setattr(prepare_run, "claimed", no_answer)
    other = run_folder("another", elsewhere / "runs")
    with other.locked(), pytest.raises(StorageError):
        new_spec(other, load_recipe(project / "recipe.yaml"), Watcher())
    assert not other.spec.exists(), "it would go on without its checkpoints being its own"
