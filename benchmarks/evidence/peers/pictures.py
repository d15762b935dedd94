"""What the live experiments on pictures train: a small net of convolutions on a part of Fashion-MNIST.

The functions are those of a recipe with ``kind: torch``; peers call them in loops of their own. The data are
Debian's package dataset-fashion-mnist, or in the folder that FASHION_MNIST names.
"""

from __future__ import annotations

import gzip
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

BATCH = 64
VALID = 2_000


def load() -> dict[str, dict[str, np.ndarray]]:
    """16,000 pictures of 28 x 28 bytes to train on, 2,000 others to validate on."""
    return {"train": _rows("train", 16_000), "valid": _rows("t10k", VALID)}


def load_few() -> dict[str, dict[str, np.ndarray]]:
    """6,000 pictures to train on."""
    return {"train": _rows("train", 6_000), "valid": _rows("t10k", VALID)}


def _rows(split: str, rows: int) -> dict[str, np.ndarray]:
    folder = Path(os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist"))
    with gzip.open(folder / f"{split}-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(16 + rows * 784), np.uint8, offset=16).reshape(-1, 1, 28, 28)
    with gzip.open(folder / f"{split}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(8 + rows), np.uint8, offset=8).astype(np.int64)
    return {"image": images, "label": labels}


def to_input(batch: Any) -> Any:
    """Bytes to numbers from 0 to 1."""
    image, label = batch
    return image.float() / 255, label


def noted_input(batch: Any, lr: float, width: int) -> Any:
    """The same, and a line about each batch that a node of a run trains, in the folder NOTES."""
    import torch

    if torch.is_grad_enabled() and "NOTES" in os.environ and "CEREBRO_NODE" in os.environ:
        with Path(os.environ["NOTES"], f"{os.environ['CEREBRO_NODE']}.notes").open("a") as file:
            file.write(f"{time.time():.4f} {lr}/{width} - - {len(batch[1])}\n")
    return to_input(batch)


def model(width: int, dropout: float = 0.0) -> Any:
    """Two convolutions and two linear layers."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(1, width, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(dropout), nn.Linear(25 * 2 * width, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def perceptron(width: int) -> Any:
    """Three linear layers: many weights, and little to compute for each."""
    from torch import nn

    hidden = nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(width, 10))


def traced_input(batch: Any) -> Any:
    """The same as ``to_input``; the process of each node names itself in the folder NOTES."""
    if "NOTES" in os.environ and "CEREBRO_NODE" in os.environ:
        file = Path(os.environ["NOTES"], f"{os.environ['CEREBRO_NODE']}.pid")
        if not file.exists():
            file.write_text(str(os.getpid()))
    return to_input(batch)
