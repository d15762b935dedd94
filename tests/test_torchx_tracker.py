"""Runs and configs as `torchx tracker` shows them."""

from __future__ import annotations

from pathlib import Path

import pytest
from torchx.tracker.api import build_trackers

from cerebro_elastic.core.history.derived import derive
from cerebro_elastic.core.history.progress import advance
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.codec import encode
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.events import StateRead
from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import CheckpointRef, Unit
from cerebro_elastic.errors import RunError
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.store.ledger.journal import Journal

RECIPE = {
    "name": "small",
    "task": {"kind": "torch", "model_fn": "m:model", "loss": "cross_entropy", "optimizer": "SGD"},
    "data": {"url": "/data"},
    "search": {"space": {"lr": [0.1, 0.01]}},
}


def visit(config: str, loss: float) -> Visit:
    """The one visit of a config."""
    output = CheckpointRef(f"/{config}", "d", 1)
    return Visit(Unit(config, 0, 0), 0, "n", 1, None, output, 1, 1, 1.0, 0.0, 0.0, {"val_loss": loss})


@pytest.fixture
def home(tmp_path: Path) -> Path:
    recipe, plan = load_recipe(RECIPE, root=tmp_path), Plan("small", 1, 1)
    folder = RunFolder(tmp_path / "small")
    folder.path.mkdir()
    spec = Spec(plan, recipe.resolved(), recipe.digest, "/data", "", "/", {}, "/", "0")
    folder.spec.write_text(encode(spec))
    visits = (visit("c0000", 0.5), visit("c0001", 0.25))
    begun = (Config("c0000", {"lr": 0.1}), Config("c0001", {"lr": 0.01}))
    configs = {config.id: advance(config, done, plan) for config, done in zip(begun, visits, strict=True)}
    state = derive(State(plan=plan, configs=configs, revision=9), visits, [])
    Journal(folder.history).append([StateRead(9, state, visits)])
    return tmp_path


def test_runs_configs_and_what_they_left(home: Path) -> None:
    (tracker,) = build_trackers({"cerebro": str(home)})
    assert list(tracker.run_ids(parent_run_id=None)) == ["small"]
    assert list(tracker.run_ids(parent_run_id="small")) == ["small/c0001", "small/c0000"]
    run = tracker.metadata("small")
    assert (run["configs"], run["best config"], run["best val_loss"]) == (2, "c0001", 0.25)
    config = tracker.metadata("small/c0000")
    assert (config["lr"], config["val_loss"]) == (0.1, 0.5)
    assert {name: artifact.path for name, artifact in tracker.artifacts("small").items()} == {
        "history": str(home / "small" / "history.jsonl"),
        "curves": str(home / "small" / "metrics.csv"),
        "best checkpoint": "/c0001",
    }
    assert tracker.artifacts("small/c0000")["best checkpoint"].path == "/c0000"
    assert [source.source_run_id for source in tracker.sources("small/c0000")] == ["small"]
    assert list(tracker.sources("small")) == []


def test_missing_runs_and_unsupported_calls(home: Path) -> None:
    (tracker,) = build_trackers({"cerebro": str(home)})
    with pytest.raises(RunError, match=r"there is no run 'large'.*choices: small"):
        tracker.metadata("large")
    with pytest.raises(RunError, match="no config 'c9'"):
        tracker.artifacts("small/c9")
    with pytest.raises(RunError, match="only reads"):
        tracker.add_metadata("small", mood="good")
