"""What a storm trains: a small net whose units last long enough to be hit, and cost almost no CPU."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from support.faults.inject import FOLDER, reach
from support.faults.plan import Point

ROWS, FEATURES, CLASSES = 64, 8, 4
"""Rows of a partition, and their shape."""
BATCH = 8
BATCH_SECONDS = 0.06
PARTITIONS = 6
SLOWLY = 4.0
"""How many times longer a batch takes while the storm asks for it."""


def data() -> dict[str, np.ndarray]:
    """Classes as a linear map sees them."""
    rng = np.random.default_rng(0)
    rows = ROWS * PARTITIONS
    x = rng.standard_normal((rows, FEATURES), dtype=np.float32)
    return {"x": x, "y": (x @ rng.standard_normal((FEATURES, CLASSES))).argmax(1)}


class Net(nn.Module):
    """Dropout makes it depend on the random state, momentum (in the recipe) on the optimizer's."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(FEATURES, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, CLASSES)
        )

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            _last()
        output: Tensor = self.layers(x)
        return output


def model(width: int, lr: float) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The net and its optimizer."""
    net = Net(width)
    return net, torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)


def slow_down(folder: Path, slowly: bool) -> None:
    """Have units last longer, so that a run does not end before its storm."""
    if slowly:
        (folder / "slowly").touch()
    else:
        (folder / "slowly").unlink(missing_ok=True)


def _last() -> None:
    """Take the time of a batch; only in a storm, not when it is replayed."""
    folder = os.environ.get(FOLDER)
    if folder is not None:
        time.sleep(BATCH_SECONDS * (SLOWLY if Path(folder, "slowly").exists() else 1.0))
        reach(Point.IN_UNIT)
