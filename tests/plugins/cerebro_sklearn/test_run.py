"""A run of a task of numpy's arrays: its ranks start without torch, and it is checked before it starts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import cerebro_elastic
from cerebro_elastic.errors import RecipeError
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.system.forkserver import SOCKET

pytest.importorskip("sklearn.linear_model")  # here, for it sets environment variables when first imported

MODULE = """
import os
import sys

import numpy as np
from sklearn.linear_model import SGDClassifier


def load():
    x = np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)
    return {"x": x, "y": (x[:, 0] > 0).astype(np.int64)}


def model(alpha):
    if "RANK" in os.environ:
        with open(os.path.join(os.path.dirname(__file__), "in_ranks"), "a") as file:
            print(sorted({"torch", "jax"} & set(sys.modules)), file=file)
    return SGDClassifier(alpha=alpha, loss="log_loss")
"""


@pytest.fixture
def recipe(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "users_sgd.py").write_text(MODULE)
    return {
        "name": "sgd",
        "seed": 3,
        "epochs": 2,
        "nodes": 2,
        "task": {"kind": "sklearn", "estimator": "users_sgd:model", "classes": 2},
        "data": {"source": "users_sgd:load", "partitions": 2, "valid": 0.2, "batch_size": 20},
        "search": {"space": {"alpha": [0.01, 0.001]}},
        "objective": {"metric": "val_accuracy", "mode": "max"},
    }


@pytest.mark.cluster
@pytest.mark.usefixtures("imports_as_found")
def test_the_ranks_start_without_torch_and_the_run_is_exact(
    recipe: Mapping[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SOCKET, raising=False)  # the tests' own server has imported torch
    result = cerebro_elastic.run(load_recipe(recipe, root=tmp_path), home=tmp_path / "runs")
    assert {row.status for row in result.leaderboard} == {"finished"}
    assert set((tmp_path / "in_ranks").read_text().splitlines()) == {"[]"}
    run = cerebro_elastic.Run(result.folder)
    assert not run.verify()
    assert all(visit.same for visit in run.replay())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"parallelism": "ddp", "node": {"ranks": 2}},
            "parallelism is 'ddp': a unit of a task of kind 'sklearn' is trained on one rank",
        ),
        ({"data": {"dataset": "users_sgd:load", "valid": 0.2}}, "data is .*materialize: true"),
        ({"data": {"source": "users_sgd:load", "pin_memory": True}}, "data is .*pin_memory` is torch's"),
        (
            {
                "task": {"kind": "torch", "model_fn": "a:b", "loss": "cross_entropy"},
                "data": {"datamodule": "a:B"},
            },
            "needs a task of kind lightning",
        ),
    ],
)
def test_a_recipe_whose_task_cannot_take_its_data_is_refused(
    recipe: dict[str, Any], change: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(RecipeError, match=message):
        load_recipe({**recipe, **change})
