"""A module's bug is reported before anything starts: its first batch is trained and validated, in a fork."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cerebro_elastic.data.manifest import read_manifest
from cerebro_elastic.errors import TaskError
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.runs.exactness.first_batch import check_first_batch
from cerebro_elastic.runs.from_recipe import first_hparams
from cerebro_elastic.runs.start.prepare_data import prepare_recipe

MODULE = """
import os
import sys

import numpy as np
import torch
from torch import nn


def load():
    x = np.random.default_rng(0).normal(size=(24, 2)).astype(np.float32)
    return {"x": x, "y": (x[:, 0] > 0).astype(np.int64)}


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, width), nn.Linear(4, 2))

    def forward(self, x):
        BUG
        return self.layers(x)


def loss(output, y):
    LOSS
    return nn.functional.cross_entropy(output, y)
"""


def checked(folder: Path, name: str, *, bug: str = "", loss: str = "", **keys: Any) -> tuple[str, ...]:
    """The notes of the check of a module with a ``bug``."""
    (folder / f"{name}.py").write_text(MODULE.replace("BUG", bug).replace("LOSS", loss))
    torch = {"kind": "torch", "model_fn": f"{name}:Net", "loss": f"{name}:loss", "optimizer": "SGD"}
    section = keys.pop("section", {**torch, "args": {"lr": 0.1}, **keys.pop("task", {})})
    recipe = load_recipe(
        {
            "task": section,
            "data": {"source": f"{name}:load", "partitions": 2, "batch_size": 4, **keys.pop("data", {})},
            "search": {"space": {"width": keys.pop("widths", [4])}},
            **keys,
        },
        root=folder,
    )
    data = str(folder / name)
    prepare_recipe(recipe, data)
    return check_first_batch(recipe, first_hparams(recipe), data, read_manifest(data))


BUGS: dict[str, tuple[dict[str, Any], str]] = {
    "shape": (
        {"widths": [5]},
        r"^a_shape\.py:\d+ in forward: return self.layers\(x\)\ntorch/.*\nRuntimeError: mat1",
    ),
    "loss": ({"loss": "return None"}, "^the loss loss returned a NoneType: it must return a tensor"),
    "death": ({"bug": "os._exit(3)"}, "^the process that trained ended with status 3: the module"),
    "nan": ({"loss": "return output.mean() * float('nan')"}, "the metric train_loss is nan\n"),
    "evaluation": (
        {"loss": "if not torch.is_grad_enabled(): raise ValueError('apart')", "validation": "evaluate"},
        r"^an_evaluation\.py:\d+ in loss: .*\nValueError: apart",
    ),
    "metric": (
        {"objective": {"metric": "val_los"}},
        "'val_los', which is not logged .*did you mean 'val_loss'",
    ),
}


@pytest.mark.parametrize(("module", "message"), BUGS.values(), ids=BUGS)
def test_a_bug_is_reported_alone_with_the_users_line_first(
    module: dict[str, Any], message: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    name = f"{'an' if request.node.callspec.id[0] == 'e' else 'a'}_{request.node.callspec.id}"
    with pytest.raises(TaskError, match=message) as error:
        checked(tmp_path, name, **module)
    assert f"of width={module.get('widths', [4])[0]}. Nothing was started." in str(error.value)


@pytest.mark.parametrize("killed", [False, True], ids=["one trains", "one is killed for its time"])
def test_what_only_some_configs_cannot_do_is_a_note(killed: bool, tmp_path: Path) -> None:
    bug = "len(self.layers[0].weight) == 4 and os.kill(os.getpid(), 9)" if killed else ""
    (note,) = checked(tmp_path, f"some_widths_{killed}", bug=bug, widths=[5, 4])
    assert note.startswith("some configs cannot be trained; the others are: some_widths_")
    assert note.endswith("in the first batches of width=5")


def test_a_module_that_trains_nothing_is_noted_and_one_that_trains_is_not(tmp_path: Path) -> None:
    (note,) = checked(tmp_path, "an_idle_net", task={"args": {"lr": 0.0}, "optimizer": "AdamW"})
    assert note.startswith("no weight has changed in the first batches of width=4: ")
    assert checked(tmp_path, "a_busy_net") == ()
    not_finite: dict[str, Any] = {"loss": "return output.mean() * np.nan", "limits": {"not_finite": "go-on"}}
    assert "cannot be trained" not in "".join(checked(tmp_path, "a_nan_that_may_be", **not_finite))
