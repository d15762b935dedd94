"""Functions as users write them, with state that hops and state that does not, and their check."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from cerebro_elastic.core.model.units import Unit
from cerebro_elastic.data.ragged import encoded
from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.data.reading.partition import Partition
from cerebro_elastic.recipes import TorchSection
from cerebro_elastic.runs.exactness.check_configs import differ_together
from cerebro_elastic.runs.exactness.compare import ExactnessCheck
from cerebro_elastic.runs.exactness.outcome import Exactness
from cerebro_elastic.training.functions import FunctionTask
from cerebro_elastic.training.task import UnitJob

HERE = Path(__file__).parent
NO_KEYS: Mapping[str, Any] = {}
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


COUNT, SCALE = [0], 1.0
RANDOM = np.random.default_rng(4)


def noisy(batch: Any, training: bool) -> Any:
    x, y = batch
    return x + training * (torch.randn_like(x) + RANDOM.normal()), y


def counted(batch: Any) -> Any:
    COUNT[0] += 1
    x, y = batch
    return x + COUNT[0], y


def scaled(batch: Any) -> Any:
    x, y = batch
    return x * SCALE, y


def timed(batch: Any) -> Any:
    x, y = batch
    return x + time.time_ns() % 1000, y


def opened(value: bytes) -> Any:
    return np.frombuffer(value, np.float32).copy()


def opened_at_random(value: bytes) -> Any:
    return opened(value) + np.float32(np.random.normal())


def augmented(value: Any) -> Any:
    return value + np.float32(np.random.normal())


def partition(index: int, rows: int, *, closed: bool = False) -> Partition:
    generator = np.random.default_rng(index)
    x = generator.normal(size=(rows, 4)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    column = encoded([row.tobytes() for row in x], "x") if closed else x
    return Partition(index, rows, {"x": column, "y": y}, name=f"partition {index}")


def jobs(lr: float, **loader: Any) -> list[UnitJob]:
    closed = "decode" in loader
    return [
        UnitJob(
            unit=Unit("c0", epoch, order[place]),
            hparams={"lr": lr},
            seed=3,
            epochs=2,
            visited=order[:place],
            rows=ROWS,
            partition=partition(order[place], ROWS[order[place]], closed=closed),
            validation=[partition(7, 5, closed=closed)] if place else (),
            loader=LoaderSettings(4, **loader),
            state=None,
            device="cpu",
        )
        for epoch, order in enumerate(((0, 1), (1, 0)))
        for place in range(2)
    ]


def checked(
    section: TorchSection, folder: Path, rates: Sequence[float], loader: Mapping[str, Any] = NO_KEYS
) -> tuple[list[Exactness], Mapping[int, str]]:
    """In a process of its own: the check of a config for each learning rate, and which differ together."""
    task = FunctionTask(section, HERE)
    checks = [ExactnessCheck(task, jobs(lr, **loader), HERE, str(folder), 240.0) for lr in rates]
    found = [each.result() for each in checks]
    return found, differ_together(checks) if len(checks) > 1 else {}
