"""A small project of a user's, and one run of it that several tests look at."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import cerebro_elastic
from cerebro_elastic import RunResult
from support.waiting import SOON

sys.path.insert(0, str(Path(__file__).parent))  # for what several tests are made of

NET = """
import lightning as L
import torch
from torch import nn
from torch.nn.functional import cross_entropy


class Net(L.LightningModule):
    def __init__(self, lr: float, width: int, fail_at: int = -1) -> None:
        super().__init__()
        self.lr, self.fail_at = lr, fail_at
        self.layers = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 10))

    def training_step(self, batch, batch_idx):
        if self.global_step == self.fail_at:
            raise ValueError(f"the learning rate {self.lr} is not to my liking")
        x, y = batch
        loss = cross_entropy(self.layers(x), y)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_acc", (self.layers(x).argmax(1) == y).float().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=self.lr, total_steps=int(self.trainer.estimated_stepping_batches)
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}
"""

DATA = """
from importlib.util import find_spec
from pathlib import Path

import numpy as np


def load():
    # scikit-learn's digits without scikit-learn, which takes seconds to import
    file = Path(find_spec("sklearn").origin).parent / "datasets" / "data" / "digits.csv.gz"
    digits = np.loadtxt(file, np.float32, delimiter=",")
    return {"x": digits[:, :64] / 16, "y": digits[:, 64].astype(np.int64)}
"""

RECIPE = """
seed: 11
epochs: 2
nodes: 2
task:
  kind: lightning
  module: "a_net:Net"
  trainer: {gradient_clip_val: 0.5, accumulate_grad_batches: 2}
data: {source: "a_dataset:load", partitions: 3, valid: 0.2, batch_size: 32}
search: {space: {lr: [0.01, 0.003], width: [16, 32]}}
objective: {metric: val_acc, mode: max}
"""

PLAIN_NET = """
import time

from torch import nn


class Slow(nn.Module):
    def forward(self, x):
        time.sleep(0.005)
        return x


def model(width):
    return nn.Sequential(Slow(), nn.Linear(64, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 10))
"""

PLAIN_RECIPE = """
seed: 11
epochs: 2
nodes: 2
task: {kind: torch, model_fn: "a_plain_net:model", loss: cross_entropy, optimizer: AdamW,
       metrics: {acc: accuracy}}
data: {source: "a_dataset:load", partitions: 3, valid: 0.2, batch_size: 32}
search: {space: {lr: [0.01, 0.003], width: [16, 32]}}
objective: {metric: val_acc, mode: max}
"""
"""For runs whose processes are killed and started again and again: without Lightning these start in half the
time."""


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a user would have it: a module, data, and ``recipe.yaml``; and ``plain.yaml``, which needs
    no Lightning."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "a_net.py").write_text(NET)
    (folder / "a_dataset.py").write_text(DATA)
    (folder / "recipe.yaml").write_text(RECIPE)
    (folder / "a_plain_net.py").write_text(PLAIN_NET)
    (folder / "plain.yaml").write_text(PLAIN_RECIPE)
    return folder


@pytest.fixture(scope="session")
def finished(project: Path) -> RunResult:
    """The recipe, run to its end on two nodes."""
    return cerebro_elastic.run(project / "recipe.yaml", run_id="finished", home=project / "runs")


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunResult]:
    """A run of two configs and two epochs, made in this process."""
    from recorded_run import record  # which is on the path now

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path])
        yield record(tmp_path_factory.mktemp("recorded"))
    sys.modules.pop("a_recorded_model", None)


@pytest.fixture(autouse=True)
def nothing_left_behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No node outlives a test, even if the process that started it was killed."""
    yield
    deadline = time.monotonic() + SOON
    while left := _nodes_below(tmp_path_factory.getbasetemp()):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def _nodes_below(folder: Path) -> list[str]:
    """Command lines of the agents and ranks whose run lies below ``folder``."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_text()
            command = (entry / "cmdline").read_text().replace("\0", " ")
        except (OSError, ValueError):
            continue
        if "cerebro_elastic.worker" in command and f"CEREBRO_CACHE={folder}" in environment:
            found.append(command)
    return found
