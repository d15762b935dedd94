"""Weights of classes and rows in the ready-made loss: what they come to, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from cerebro_elastic.core.model.units import Strategy
from cerebro_elastic.data.manifest import read_manifest
from cerebro_elastic.errors import DataError, RecipeError, TaskError
from cerebro_elastic.recipes import Recipe, load_recipe
from cerebro_elastic.runs.start.prepare_data import prepare_recipe
from cerebro_elastic.training.passes import weighted
from cerebro_elastic.training.task import LossWeights
from cerebro_elastic.training.unit_runner import loss_weights, make_task

MODULE = """
import numpy as np
import torch

def load():
    y = np.array([0, 0, 0, 0, 0, 1, 1, 2])
    return {"x": np.eye(8, dtype="f4"), "y": y, "w": np.arange(8), "who": np.array(list("aabbccdd"))}

def gap():
    return {"x": np.eye(8, dtype="f4"), "y": np.array([0, 0, 0, 0, 0, 2, 2, 2])}

def net():
    return torch.nn.Linear(8, 3)

def stiff(output, y):
    return output.sum()
"""
OUTPUT = torch.tensor([[1.0, 2.0, 0.5], [0.1, 0.2, 3.0], [2.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
LABELS = torch.tensor([1, 0, -100, 2])
CLASSES = (0.5, 2.0, 4.0)


def loss_of(loss: Any, weights: LossWeights, output: Tensor, *batch: Tensor) -> float:
    return weighted(loss, weights, torch.device("cpu"))(batch, 1.0).loss_of(output, batch[1]).item()


def test_class_weights_are_those_of_torch() -> None:
    expected = functional.cross_entropy(OUTPUT, LABELS, weight=torch.tensor(CLASSES)).item()
    actual = loss_of(functional.cross_entropy, LossWeights(CLASSES), OUTPUT, OUTPUT, LABELS)
    assert actual == pytest.approx(expected)
    pixels = OUTPUT.T[None]  # a row of four pixels
    actual = loss_of(functional.cross_entropy, LossWeights(CLASSES), pixels, pixels, LABELS[None])
    assert actual == pytest.approx(expected)


def test_the_loss_of_a_row_counts_by_its_weight() -> None:
    w, y = torch.tensor([1.0, 0.0, 3.0, 0.5]), OUTPUT.flip(0)
    rows = ((OUTPUT - y) ** 2).mean(1)
    actual = loss_of(functional.mse_loss, LossWeights(samples=True), OUTPUT, OUTPUT, y, w)
    assert actual == pytest.approx(((w * rows).sum() / w.sum()).item())
    assert loss_of(functional.mse_loss, LossWeights(samples=True), OUTPUT, OUTPUT, y, 0 * w) == 0


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "weighed_net.py").write_text(MODULE)
    return tmp_path


def recipe(root: Path, data: dict[str, Any], **task: Any) -> Recipe:
    section = {"kind": "torch", "model_fn": "weighed_net:net", "loss": "cross_entropy", "optimizer": "SGD"}
    text = {"name": "r", "task": {**section, **task}, "data": data, "search": {"space": {"lr": [0.1]}}}
    return load_recipe(text, root=root)


@pytest.mark.usefixtures("imports_as_found")
def test_balanced_weights_and_the_column_of_weights_come_from_the_dataset(root: Path) -> None:
    data = {"source": "weighed_net:load", "partitions": 2, "valid": 0, "stratify": "y", "split_by": "who"}
    made = recipe(root, {**data, "sample_weight": "w"}, class_weights="balanced")
    prepare_recipe(made, str(root / "out"))
    manifest = read_manifest(str(root / "out"))
    assert [(column.name, column.dtype) for column in manifest.columns] == [
        ("x", "<f4"),
        ("y", "<i8"),
        ("w", "<f4"),
    ]
    assert manifest.class_counts == {"y": [5, 2, 1]}
    assert loss_weights(made, manifest) == LossWeights((8 / 15, 8 / 6, 8 / 3), samples=True)
    listed = recipe(root, {"url": str(root / "out")}, class_weights=[1, 2])
    with pytest.raises(RecipeError, match="has 2 weights, and column 'y' of the training data 3 classes"):
        loss_weights(listed, manifest)


@pytest.mark.usefixtures("imports_as_found")
def test_weights_of_unknown_classes_are_refused(root: Path) -> None:
    data = {"source": "weighed_net:gap", "partitions": 1, "valid": 0, "stratify": "y"}
    prepare_recipe(recipe(root, data), str(root / "uncounted"))
    counted = recipe(root, data, class_weights="balanced")
    with pytest.raises(RecipeError, match=r"does not say how many rows each class has.*--count-classes"):
        loss_weights(counted, read_manifest(str(root / "uncounted")))
    prepare_recipe(counted, str(root / "counted"))
    with pytest.raises(RecipeError, match="the training data have no row of class 1 in column 'y'"):
        loss_weights(counted, read_manifest(str(root / "counted")))
    with pytest.raises(RecipeError, match=r"data.label or data.stratify"):
        prepare_recipe(recipe(root, {"source": "weighed_net:gap"}, class_weights="balanced"), "out")
    text = {**data, "source": "weighed_net:load", "stratify": "who"}
    with pytest.raises(DataError, match=r"column 'who' .*`encode: \[who\]`"):
        prepare_recipe(recipe(root, text, class_weights="balanced"), "out")


@pytest.mark.usefixtures("imports_as_found")
def test_a_loss_or_a_parallelism_that_cannot_weigh_is_refused_before_the_run(root: Path) -> None:
    data = {"source": "weighed_net:load"}
    stiff: Any = make_task(recipe(root, data, loss="weighed_net:stiff"))
    with pytest.raises(TaskError, match="stiff has no parameter `reduction`"):
        stiff.check_weights([Strategy()])
    usual: Any = make_task(recipe(root, data))
    with pytest.raises(TaskError, match="pipeline takes the mean over the rows of each part of a batch"):
        usual.check_weights([Strategy("pipeline", 2)])
    usual.check_weights([Strategy("pipeline", 2), Strategy("ddp", 2)])
    for weights in ("even", [], [0, 0], [-1, 1], [True, 1], 3):
        with pytest.raises(RecipeError, match="expected `balanced`, or a list"):
            recipe(root, data, class_weights=weights)
    assert np.isclose(recipe(root, data, class_weights=[1, 2.5]).task.class_weights, (1, 2.5)).all()  # type: ignore[attr-defined]
