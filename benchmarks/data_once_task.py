"""The pictures, functions and net of ``data_once.py``."""

from __future__ import annotations

import io
import os
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_sample_image
from torch import Tensor, nn

SIDE, CROP, CLASSES = 224, 192, 4


def pictures(rows: int) -> dict[str, list[bytes]]:
    """Crops of scikit-learn's two photographs as JPEGs, in four classes: which photograph, and which half."""
    photographs = [load_sample_image(name) for name in ("china.jpg", "flower.jpg")]
    draw = random.Random(0)
    images, labels = [], []
    for row in range(rows):
        label = row % CLASSES
        photograph = photographs[label // 2]
        top = draw.randrange(photograph.shape[0] - SIDE)
        half = (photograph.shape[1] - SIDE) // 2
        left = draw.randrange(half) + half * (label % 2)
        file = io.BytesIO()
        Image.fromarray(photograph[top : top + SIDE, left : left + SIDE]).save(file, "JPEG", quality=90)
        images.append(file.getvalue())
        labels.append(label)
    return {"image": images, "label": np.array(labels)}  # type: ignore[dict-item]


def load() -> Mapping[str, Any]:
    return pictures(int(os.environ["CEREBRO_BENCHMARK_ROWS"]))


def opened(value: bytes) -> NDArray[np.uint8]:
    """Draws nothing."""
    times = int(os.environ.get("CEREBRO_BENCHMARK_TIMES", "1"))
    return [np.asarray(Image.open(io.BytesIO(value))) for _ in range(times)][-1]


def cropped(picture: NDArray[np.uint8], training: bool = True) -> NDArray[np.float32]:
    """A crop, at random in training, of shape (3, CROP, CROP)."""
    most = SIDE - CROP
    top, left = np.random.randint(0, most, 2) if training else (most // 2, most // 2)
    part = picture[top : top + CROP, left : left + CROP]
    return np.ascontiguousarray(part.transpose(2, 0, 1), np.float32) / 255


def opened_and_cropped(value: bytes, training: bool) -> NDArray[np.float32]:
    """Both in one function, as people have it."""
    return cropped(opened(value), training)


class Net(nn.Module):
    """A small net of strided convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 7, 4), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
            nn.Flatten(), nn.Linear(16, CLASSES),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.layers(x)
        return result


def make(lr: float) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = Net()
    return model, torch.optim.SGD(model.parameters(), lr=lr)
