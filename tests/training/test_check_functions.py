"""``cerebro check`` of plain PyTorch: units against one model that is never taken apart."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
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
ME = Path(__file__).stem
ROWS = (11, 8)


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


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


def section(**values: Any) -> TorchSection:
    return TorchSection(model_fn=f"{ME}:model_fn", loss="cross_entropy").model_copy(update=values)


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


def check(task: TorchSection, folder: Path) -> Exactness:
    return ExactnessCheck(FunctionTask(task, HERE), jobs(0.1), HERE, str(folder), 120.0).result()


@pytest.mark.parametrize(
    "task",
    [
        section(),
        section(model_fn=f"{ME}:counting_fn"),
        section(loss=None, train_fn=f"{ME}:train_fn", step_scheduler="epoch"),
    ],
    ids=["ready-made step", "attributes", "train_fn"],
)
def test_units_equal_one_model_that_is_never_taken_apart(task: TorchSection, tmp_path: Path) -> None:
    found = check(task, tmp_path)
    assert found.outcome is CheckOutcome.EQUAL, found.story
    assert found.compared.keys() >= {"weight", "optimizer", "generator", "logged", "metric"}


def test_state_that_stays_behind_is_named(tmp_path: Path) -> None:
    found = check(section(model_fn=f"{ME}:asking_fn"), tmp_path)
    assert found.outcome is CheckOutcome.DIFFERS
    assert found.story.startswith("attribute calls")
    assert "unit 2" in found.story


def test_the_effect_of_one_config_on_another_is_found_in_one_process(tmp_path: Path) -> None:
    by = FunctionTask(section(model_fn=f"{ME}:scaled_fn"), HERE)
    checks = [ExactnessCheck(by, jobs(lr), HERE, str(tmp_path), 120.0) for lr in (0.1, 0.5)]
    assert [each.result().outcome for each in checks] == [CheckOutcome.EQUAL] * 2
    stories = differ_together(checks)
    assert stories.keys() == {0}, "the second sets it itself"
    assert stories[0].startswith("in one process with other configs, as on a rank of a run, ")
    assert "unit 2" in stories[0]
    plain = FunctionTask(section(), HERE)
    exact = [ExactnessCheck(plain, jobs(lr), HERE, str(tmp_path), 120.0) for lr in (0.1, 0.5)]
    assert [each.result().outcome for each in exact] == [CheckOutcome.EQUAL] * 2
    assert differ_together(exact) == {}
    assert not list(tmp_path.iterdir())
