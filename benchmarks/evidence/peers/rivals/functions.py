"""What the recipes of ``our_recipes.py`` name. Rivals train the same models, and draw from the same space."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

Columns = Mapping[str, np.ndarray]
BATCH, CLASSES = 128, 10


def few() -> Columns:
    """One batch of eight rows."""
    return {"x": np.eye(8, 4, dtype=np.float32), "y": np.arange(8) % 2}


def linear(lr: float) -> Any:
    """A model of ten weights with dropout, and its optimizer: Adam has a state of its own."""
    import torch

    model = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Linear(4, 2))
    return model, torch.optim.Adam(model.parameters(), lr)


def wide(lr: float) -> Any:
    """The same beside 80 MB that no step changes."""
    import torch

    model, optimizer = linear(lr)
    model.register_buffer("large", torch.zeros(10_000_000, dtype=torch.float64))
    return model, optimizer


def sleeping(batch: Any) -> Any:
    """The batch as it is, after the seconds that the environment variable SLEEP names."""
    time.sleep(float(os.environ["SLEEP"]))
    return batch


def pictures() -> dict[str, Columns]:
    """Drawn, of Fashion-MNIST's shape: 30 batches of 128 to train on, 10 to validate on, as many as
    ``pytorch_simple`` takes in each epoch."""
    draw = np.random.default_rng(0)
    centres = draw.normal(size=(CLASSES, 784))

    def rows(batches: int) -> Columns:
        label = draw.integers(CLASSES, size=batches * BATCH)
        image = centres[label] + draw.normal(scale=8.0, size=(len(label), 784))
        return {"image": image.astype(np.float32), "label": label}

    return {"train": rows(30), "valid": rows(10)}


def suggest(trial: Any) -> dict[str, Any]:
    """A point of the space of ``pytorch_simple``, drawn by a trial of Optuna's."""
    layers = range(trial.suggest_int("n_layers", 1, 3))
    point: dict[str, Any] = {"n_layers": len(layers)}
    for layer in layers:
        point[f"n_units_l{layer}"] = trial.suggest_int(f"n_units_l{layer}", 4, 128)
        point[f"dropout_l{layer}"] = trial.suggest_float(f"dropout_l{layer}", 0.2, 0.5)
    point["optimizer"] = trial.suggest_categorical("optimizer", ["Adam", "RMSprop", "SGD"])
    point["lr"] = trial.suggest_float("lr", 1e-5, 1e-1, log=True)
    return point


def perceptron(n_layers: int, optimizer: str, lr: float, **layers: Any) -> Any:
    """The network of ``pytorch_simple``, and its optimizer."""
    import torch
    from torch import nn

    widths = [784, *(layers[f"n_units_l{layer}"] for layer in range(n_layers))]
    hidden = [
        each
        for layer, (inputs, outputs) in enumerate(pairwise(widths))
        for each in (nn.Linear(inputs, outputs), nn.ReLU(), nn.Dropout(layers[f"dropout_l{layer}"]))
    ]
    model = nn.Sequential(*hidden, nn.Linear(widths[-1], CLASSES), nn.LogSoftmax(1))
    return model, getattr(torch.optim, optimizer)(model.parameters(), lr=lr)


def table(rows: int) -> Columns:
    """Drawn rows of 20 columns and two classes."""
    from sklearn.datasets import make_classification

    x, y = make_classification(rows, 20, n_informative=10, random_state=0)
    return {"x": x.astype(np.float32), "y": y}


def small_table() -> Columns:
    return table(2_000)


def large_table() -> Columns:
    return table(30_000)


def digits() -> Columns:
    """scikit-learn's digits."""
    from sklearn.datasets import load_digits

    found = load_digits()
    return {"x": (found.data / 16).astype(np.float32), "y": found.target}
