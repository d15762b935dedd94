"""What a plain PyTorch config's ``model_fn`` makes of the number of epochs is found by making it twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cerebro_elastic.core.model.units import Unit
from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.data.reading.partition import Partition
from cerebro_elastic.recipes import TorchSection
from cerebro_elastic.training.functions import FunctionTask
from cerebro_elastic.training.task import UnitJob

MODULE = """
import torch
from torch import nn
from torch.optim import SGD
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR, StepLR

def parts(lr):
    model = nn.Linear(2, 2)
    return model, SGD(model.parameters(), lr=lr)

def plain(lr):
    return parts(lr)

def unused(lr, steps):
    return parts(lr)

def stepwise(lr, epochs):
    model, optimizer = parts(lr)
    return model, optimizer, StepLR(optimizer, 2)

def cycle(lr, steps):
    model, optimizer = parts(lr)
    return model, optimizer, OneCycleLR(optimizer, lr, total_steps=steps)

def closure(lr, epochs):
    model, optimizer = parts(lr)
    return model, optimizer, LambdaLR(optimizer, lambda epoch: 1 - epoch / epochs)

def rate(lr, **budget):
    return parts(lr / budget["epochs"])

def inside(lr, epochs):
    model, optimizer = parts(lr)
    model.horizon = epochs
    return model, optimizer
"""

NAMED = {
    "plain": None,
    "unused": None,
    "stepwise": None,
    "cycle": "lengths_module:cycle takes steps: OneCycleLR.total_steps is 10, it would be 20",
    "closure": "lengths_module:closure takes epochs: LambdaLR.lr_lambdas would be another",
    "rate": "lengths_module:rate takes epochs and steps: parameter group 0.lr is 0.05, it would be 0.025",
    "inside": "lengths_module:inside takes epochs: model.horizon is 2, it would be 4",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lengths")
    (folder / "lengths_module.py").write_text(MODULE)
    return folder


@pytest.mark.parametrize("function", NAMED)
def test_code_that_depends_on_the_length_is_named(function: str, folder: Path) -> None:
    section = TorchSection(kind="torch", model_fn=f"lengths_module:{function}", loss="cross_entropy")
    rows = {"x": np.zeros((4, 2), np.float32), "y": np.zeros(4, np.int64)}
    job = UnitJob(
        unit=Unit("c0000", 0, 0),
        hparams={"lr": 0.1},
        seed=1,
        epochs=2,
        visited=(),
        rows=(4,),
        partition=Partition(0, 4, rows),
        validation=(),
        loader=LoaderSettings(batch_size=4),
        state=None,
        device="cpu",
    )
    named = FunctionTask(section, folder).length_readers([job], (8, 12), 4)
    assert (list(named)[:1] or [None]) == [NAMED[function]]
