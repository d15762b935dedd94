"""Functions as users write them, with state that hops and state that does not, and their check."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from cerebro_elastic.core.model.units import Unit
from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.data.reading.partition import Partition
from cerebro_elastic.recipes import TorchSection
from cerebro_elastic.runs.exactness.check_configs import differ_together
from cerebro_elastic.runs.exactness.compare import ExactnessCheck
from cerebro_elastic.runs.exactness.outcome import CheckOutcome, Exactness
from cerebro_elastic.training.functions import FunctionTask
from cerebro_elastic.training.task import UnitJob

HERE = Path(__file__).parent
ROWS = (11, 8)


def model_fn(lr: float) -> Any:
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)


class Counting(nn.Linear):
    """Keeps count in a plain attribute, which no state dict has, and hops nevertheless."""

    calls = 0

    def forward(self, input: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(input) * (1 + 0.01 * self.calls)


def counting_fn(lr: float) -> Any:
    model = Counting(4, 2)
    return model, torch.optim.SGD(model.parameters(), lr=lr)


class OperatorVerbs(Counting):
    """Counts where nobody looks."""

    def forward(self, input: Tensor) -> Tensor:
        os.environ["CALLS"] = str(int(os.environ.get("CALLS", "0")) + 1)
        self.calls = int(os.environ["CALLS"])
        return super().forward(input)


def asking_fn(lr: float) -> Any:
    model = OperatorVerbs(4, 2)
    return model, torch.optim.SGD(model.parameters(), lr=lr)


class Scaled(nn.Linear):
    """Reads what a constructor has left in a library."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) * getattr(os, "planted_scale", 1.0)


def scaled_fn(lr: float) -> Any:
    if lr > 0.1:
        os.planted_scale = 2.0  # type: ignore[attr-defined]
    model = Scaled(4, 2)
    return model, torch.optim.SGD(model.parameters(), lr=lr)


def train_fn(model: nn.Module, optimizer: Any, batches: Any) -> dict[str, float]:
    for x, y in batches:
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    return {"rows": 1.0}


def partition(index: int, rows: int) -> Partition:
    generator = np.random.default_rng(index)
    x = generator.normal(size=(rows, 4)).astype(np.float32)
    return Partition(index, rows, {"x": x, "y": (x[:, 0] > 0).astype(np.int64)})


def jobs(lr: float) -> list[UnitJob]:
    return [
        UnitJob(
            unit=Unit("c0", epoch, order[place]),
            hparams={"lr": lr},
            seed=3,
            epochs=2,
            visited=order[:place],
            rows=ROWS,
            partition=partition(order[place], ROWS[order[place]]),
            validation=[partition(7, 5)] if place else (),
            loader=LoaderSettings(4),
            state=None,
        )
        for epoch, order in enumerate(((0, 1), (1, 0)))
        for place in range(2)
    ]


def checked(
    section: TorchSection, folder: Path, rates: Sequence[float]
) -> tuple[list[Exactness], Mapping[int, tuple[CheckOutcome, str]]]:
    """In a process of its own: the check of a config for each learning rate, and which differ together."""
    task = FunctionTask(section, HERE)
    checks = [ExactnessCheck(task, jobs(lr), HERE, str(folder), 120.0) for lr in rates]
    found = [each.result() for each in checks]
    return found, differ_together(checks) if len(checks) > 1 else {}
