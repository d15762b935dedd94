"""What all systems train: datasets, their models, and a grid of 16 configs for each.

A workload is written into a folder once (``write``): its columns as ``.npy`` files for the peers, its
partitions for ours. Every system reads its own form of the same rows.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

RECIPES = Path(__file__).parents[3] / "recipes"
PARTITIONS = 2
DATASETS = {"partitions": PARTITIONS}
Columns = Mapping[str, Any]


@dataclass(frozen=True)
class Extent:
    """How much is trained."""

    train: int
    """Rows, an even number: two ranks share them."""
    valid: int
    """Rows, an even number."""
    epochs: int


@dataclass(frozen=True)
class Workload:
    """A dataset, its models, and the grid."""

    columns: Callable[[], Columns]
    """All rows, by column; the last column is the label."""
    model: Callable[[str], nn.Module]
    """The model of an architecture."""
    to_input: Callable[[Sequence[Tensor]], tuple[Any, Tensor]]
    """What the model takes, and the labels, of the columns of a batch."""
    space: Mapping[str, Sequence[Any]]
    extents: Mapping[str, Extent]
    """How much is trained, by size; of a size that it does not name it has no part."""


def _recipe(name: str) -> Any:
    """The module of a recipe of ours, whose data are used here."""
    from importlib import import_module

    sys.path.append(str(RECIPES))
    return import_module(name)


def _fashion() -> Columns:
    data = _recipe("fashion_mnist_lightning").load()
    return {name: np.concatenate([data["train"][name], data["valid"][name]]) for name in ("image", "label")}


def _fashion_model(architecture: str) -> nn.Module:
    kind, _, width = architecture.partition("-")
    if width:
        return nn.Sequential(nn.Flatten(), nn.Linear(784, int(width)), nn.ReLU(), nn.Linear(int(width), 10))
    if kind == "perceptron":
        return nn.Sequential(
            nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)
        )
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(400, 64), nn.ReLU(), nn.Linear(64, 10)),
    )


def _fashion_input(batch: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    image, label = batch
    return image.float() / 255, label


def _text() -> Columns:
    return dict(_recipe("text_ragged").load())


class Convolutions(nn.Module):
    """Reads letters by convolutions, and keeps the largest of each channel."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.letters = nn.Embedding(256, width)
        self.net = nn.Conv1d(width, 2 * width, 5, padding=2)
        self.out = nn.Linear(2 * width, classes)

    def forward(self, x: tuple[Tensor, Tensor]) -> Tensor:
        text, _ = x
        read: Tensor = self.net(self.letters(text).transpose(1, 2)).relu().amax(2)
        out: Tensor = self.out(read)
        return out


def _text_model(architecture: str) -> nn.Module:
    recipe = _recipe("text_ragged")
    if architecture == "recurrent":
        model: nn.Module = recipe.Sentences(32)
        return model
    return Convolutions(32, len(recipe.MODULES))


def _text_input(batch: Sequence[Tensor]) -> tuple[tuple[Tensor, Tensor], Tensor]:
    text, lengths, label = batch
    return (text[:, : lengths.max()].long(), lengths), label


def _clicks_model(_: str) -> nn.Module:
    model: nn.Module = _recipe("criteo_shaped").Clicks()
    return model


def _drawn() -> Columns:
    """50,000 pictures of 64 x 64 pixels in ten classes, 614 MB: noise, and on it the picture of the class."""
    draw = np.random.default_rng(0)
    label = draw.integers(10, size=50_000)
    pictures = draw.integers(50, size=(10, 3, 64, 64), dtype=np.uint8)
    image = draw.integers(200, size=(len(label), 3, 64, 64), dtype=np.uint8)
    image += pictures[label]
    return {"image": image, "label": label}


def _drawn_model(_: str) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, 16), nn.ReLU(), nn.Linear(16, 10))


def _drawn_input(batch: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    image, label = batch
    return image.float() / 255 - 0.4, label  # about 0 on the average


FASHION = Workload(
    _fashion,
    _fashion_model,
    _fashion_input,
    {
        "architecture": ["convolutions", "perceptron"],
        "batch_size": [32, 128],
        "lr": [1e-3, 3e-4],
        "weight_decay": [1e-4, 1e-6],
    },
    {"reduced": Extent(1_500, 500, 1), "full": Extent(6_000, 2_000, 3)},
)
WORKLOADS = {
    "fashion": FASHION,
    "whole": replace(FASHION, extents={"full": Extent(60_000, 10_000, 1)}),
    "text": Workload(
        _text,
        _text_model,
        _text_input,
        {
            "architecture": ["recurrent", "convolutions"],
            "batch_size": [16, 32],
            "lr": [1e-2, 3e-3],
            "weight_decay": [1e-4, 1e-6],
        },
        {"full": Extent(800, 200, 2)},
    ),
    "clicks": Workload(
        lambda: _recipe("criteo_shaped").load(),
        _clicks_model,
        lambda batch: _recipe("criteo_shaped").to_input(batch),
        {
            "architecture": ["wide"],
            "batch_size": [128, 256, 512, 1024],
            "lr": [1e-3, 1e-4],
            "weight_decay": [1e-4, 1e-5],
        },
        {"full": Extent(5_120, 2_000, 1)},
    ),
    "drawn": Workload(_drawn, _drawn_model, _drawn_input, {}, {}),
}
"""The grids are the paper's in shape (VLDB 2020, Table 5): 16 configs; of clicks one model and four batch
sizes, of the others two models. Batches and learning rates suit fewer rows."""


def configs(space: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """All points of a grid."""
    return [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]


def of_size(size: str) -> list[str]:
    """The workloads that have a part of a size."""
    return [name for name, workload in WORKLOADS.items() if size in workload.extents]


def written() -> dict[str, Columns]:
    """The columns of both splits in the folder that ``WORKLOAD`` names, for recipes."""
    folder = Path(os.environ["WORKLOAD"])
    names = json.loads((folder / "job.json").read_text())["columns"]
    return {
        split: {name: np.load(folder / split / f"{name}.npy") for name in names}
        for split in ("train", "valid")
    }


def write(
    folder: Path,
    name: str,
    extent: Extent,
    space: Mapping[str, Sequence[Any]] | None = None,
    datasets: Mapping[str, int] = DATASETS,
) -> None:
    """Write a workload into a folder: ``job.json``, the columns of both splits, and datasets of ours by the
    number of their partitions."""
    from cerebro_elastic import prepare

    workload = WORKLOADS[name]
    columns = workload.columns()
    rows = np.random.default_rng(0).permutation(len(next(iter(columns.values()))))
    splits = {"train": rows[: extent.train], "valid": rows[extent.train :][: extent.valid]}
    chosen = {
        split: {key: _take(column, at) for key, column in columns.items()} for split, at in splits.items()
    }
    for split, taken in chosen.items():
        (folder / split).mkdir(parents=True)
        padded = _padded(taken)
        for key, column in padded.items():
            np.save(folder / split / f"{key}.npy", column)
    for dataset, partitions in datasets.items():
        prepare(lambda: chosen, str(folder / dataset), partitions=partitions)
    job = {
        "workload": name,
        "epochs": extent.epochs,
        "space": space or workload.space,
        "columns": list(padded),
    }
    (folder / "job.json").write_text(json.dumps(job))


def _take(column: Any, rows: Any) -> Any:
    return [column[at] for at in rows] if isinstance(column, list) else column[rows]


def _padded(columns: Columns) -> Columns:
    """Columns of arrays of varying length as a matrix, and the lengths behind it."""
    padded: dict[str, Any] = {}
    for name, column in columns.items():
        if isinstance(column, list):
            lengths = np.array([len(value) for value in column])
            matrix = np.zeros((len(column), lengths.max()), column[0].dtype)
            for row, value in zip(matrix, column, strict=True):
                row[: len(value)] = value
            padded |= {name: matrix, f"{name}_lengths": lengths}
        else:
            padded[name] = column
    return padded


def model_fn(workload: str, architecture: str) -> nn.Module:
    """The model, for recipes."""
    return WORKLOADS[workload].model(architecture)


def input_fn(batch: Sequence[Tensor], workload: str) -> tuple[Any, Tensor]:
    """What the model takes, and the labels, for recipes."""
    return WORKLOADS[workload].to_input(batch)
