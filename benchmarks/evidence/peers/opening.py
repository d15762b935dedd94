"""Pictures that take long to open, the functions that open and crop them, and a small net.

Rows are crops of scikit-learn's two photographs as JPEGs. Each row that is opened adds a byte to the file
that OPENED names.
"""

from __future__ import annotations

import io
import json
import os
import random
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import cross_entropy

SIDE, CROP, CLASSES, BATCH, VALID = 320, 64, 4, 32, 0.2


def load(rows: int | None = None) -> Mapping[str, Any]:
    """JPEGs in four classes: which photograph, and which half of it."""
    from PIL import Image
    from sklearn.datasets import load_sample_image

    photographs = [load_sample_image(name) for name in ("china.jpg", "flower.jpg")]
    draw, images, labels = random.Random(0), [], []
    for row in range(rows or int(os.environ["ROWS"])):
        label = row % CLASSES
        photograph = photographs[label // 2]
        half = (photograph.shape[1] - SIDE) // 2
        top = draw.randrange(photograph.shape[0] - SIDE)
        left = draw.randrange(half) + half * (label % 2)
        file = io.BytesIO()
        Image.fromarray(photograph[top : top + SIDE, left : left + SIDE]).save(file, "JPEG", quality=90)
        images.append(file.getvalue())
        labels.append(label)
    return {"image": images, "label": np.array(labels)}


def opened(value: bytes) -> NDArray[np.uint8]:
    """Draws nothing."""
    from PIL import Image

    with Path(os.environ["OPENED"]).open("ab") as notes:
        notes.write(b".")
    return np.asarray(Image.open(io.BytesIO(value)))


def cropped(picture: NDArray[np.uint8], training: bool) -> NDArray[np.float32]:
    """A crop, at random in training, of shape (3, CROP, CROP)."""
    most = SIDE - CROP
    top, left = np.random.randint(0, most, 2) if training else (most // 2, most // 2)
    part = picture[top : top + CROP, left : left + CROP]
    return np.ascontiguousarray(part.transpose(2, 0, 1), np.float32) / 255


def opened_and_cropped(value: bytes, training: bool) -> NDArray[np.float32]:
    """Both in one function, as people have it."""
    return cropped(opened(value), training)


def make(lr: float) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A net of strided convolutions, as wide as WIDTH says."""
    width = int(os.environ["WIDTH"])
    net = nn.Sequential(
        nn.Conv2d(3, width, 7, 4), nn.ReLU(), nn.Conv2d(width, 2 * width, 3, 2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, CLASSES),
    )  # fmt: skip
    return net, torch.optim.SGD(net.parameters(), lr=lr)


def rates(configs: int) -> list[float]:
    """The configs' learning rates."""
    return [round(0.1 / 2**number, 6) for number in range(configs)]


class Rows(torch.utils.data.Dataset[Any]):
    """Rows of ``columns``; in ``memory`` each is opened once, as a loader by hand does."""

    def __init__(self, columns: Mapping[str, Any], training: bool, memory: bool) -> None:
        rows = len(columns["label"])
        first = round(rows * (1 - VALID))
        chosen = range(first) if training else range(first, rows)
        self._images = [columns["image"][row] for row in chosen]
        self._labels = [int(columns["label"][row]) for row in chosen]
        self._training = training
        self._memory: dict[int, Any] | None = {} if memory else None

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, row: int) -> tuple[Any, int]:
        if self._memory is None:
            picture = opened(self._images[row])
        elif row not in self._memory:
            picture = self._memory[row] = opened(self._images[row])
        else:
            picture = self._memory[row]
        return cropped(picture, self._training), self._labels[row]


def loaders(memory: bool) -> tuple[Any, Any]:
    """Loaders of training and of validation: with a worker process each, or from memory."""
    columns = load()
    apart: dict[str, Any] = {} if memory else {"num_workers": 1, "persistent_workers": True}
    return tuple(
        torch.utils.data.DataLoader(Rows(columns, training, memory), BATCH, shuffle=training, **apart)
        for training in (True, False)
    )


def row_milliseconds(rows: int = 512) -> dict[str, float]:
    """The milliseconds of a row in this process: to open and crop it, and to train on it."""
    columns, (net, optimizer) = load(rows), make(0.01)
    began = time.perf_counter()
    pictures = [opened_and_cropped(image, True) for image in columns["image"]]
    between = time.perf_counter()
    for first in range(0, rows, BATCH):
        x = torch.from_numpy(np.stack(pictures[first : first + BATCH]))
        optimizer.zero_grad()
        cross_entropy(net(x), torch.from_numpy(columns["label"][first : first + BATCH])).backward()
        optimizer.step()
    spent = {"open": between - began, "train": time.perf_counter() - between}
    return {name: 1000 * seconds / rows for name, seconds in spent.items()}


if __name__ == "__main__":
    os.environ |= {"OPENED": os.devnull, "WIDTH": sys.argv[1]}
    torch.set_num_threads(1)
    print(json.dumps(row_milliseconds()))
