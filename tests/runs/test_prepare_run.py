"""The paths in the spec of a new run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cerebro_elastic.data.manifest import check_unchanged
from cerebro_elastic.errors import StorageError
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.runs.folder import run_folder
from cerebro_elastic.runs.start import prepare_run
from cerebro_elastic.runs.start.prepare_data import prepare
from cerebro_elastic.runs.start.prepare_run import new_spec
from cerebro_elastic.runs.terminal_view import Watcher
from support.sharded import write_parquet

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


def test_the_manifest_of_shards_lies_where_all_machines_see_it(tmp_path: Path) -> None:
    shards = write_parquet(
        str(tmp_path / "shards"), lambda _n: {"x": np.ones((9, 2), np.float32), "y": [0] * 9}
    )
    recipe = RECIPE.replace("url: digits/", f"shards: {shards}, partitions: 2, valid: 0.3")
    (tmp_path / "recipe.yaml").write_text(recipe)
    folder = run_folder("a-run", tmp_path / "runs")
    with folder.locked():
        spec = new_spec(folder, load_recipe(tmp_path / "recipe.yaml"), Watcher())
        assert spec.data.startswith(f"{tmp_path}/kept/a-run/data/")
        manifest = check_unchanged(spec.data, spec.data_digest)
        assert (manifest.rows, [files.rows for files in manifest.valid]) == ((18, 18), [18])
        assert folder.read_spec() == spec
        assert not folder.data.exists()
