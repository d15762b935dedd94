"""Layers that are not trained stay where they are, and the training is the same."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cerebro_elastic import checkpoint
from cerebro_elastic.core.model.units import CheckpointRef, Unit
from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.data.reading.partition import Partition
from cerebro_elastic.recipes import TorchSection
from cerebro_elastic.training.functions import FunctionTask
from cerebro_elastic.training.task import Task, TaskState, UnitJob, UnitResult
from cerebro_lightning import LightningTask
from cerebro_lightning.section import LightningSection

pytestmark = pytest.mark.usefixtures("imports_as_found")

WIDTH, ROWS, EPOCHS = 600, (8, 6), 3
UNFREEZES = 2
"""The epoch in which the second layer is trained, too."""


MODULE = f"""import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import BackboneFinetuning
from torch import nn

WIDTH, UNFREEZES = {WIDTH}, {UNFREEZES}


class Net(nn.Module):
    'Two frozen layers, and a head.'

    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(6, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        self.backbone.requires_grad_(False)
        self.backbone[0].weight.data = self.backbone[0].weight.data.T.contiguous().T
        self.register_buffer("table", torch.arange(WIDTH * 2.0))
        self.norm = nn.BatchNorm1d(WIDTH)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, x):
        return self.head(self.norm(self.backbone(x) + self.table[:WIDTH]))


def train(model, optimizer, batches, epoch):
    if epoch == UNFREEZES and not model.backbone[2].weight.requires_grad:
        model.backbone[2].requires_grad_(True)
        optimizer.add_param_group({{"params": list(model.backbone[2].parameters())}})
    for x, y in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def model():
    net = Net()
    return net, torch.optim.AdamW([p for p in net.parameters() if p.requires_grad])


class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()
        self.backbone = self.net.backbone[2]

    def training_step(self, batch, _):
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def configure_optimizers(self):
        return torch.optim.AdamW([p for p in self.parameters() if p.requires_grad])


def finetuning():
    return BackboneFinetuning(UNFREEZES, train_bn=False)
"""


def torch_task(root: Path) -> Task:
    return FunctionTask(TorchSection(model_fn="frozen_net:model", train_fn="frozen_net:train"), root)


def lightning_task(root: Path) -> Task:
    section = LightningSection(
        kind="lightning", module="frozen_net:Module", callbacks=["frozen_net:finetuning"]
    )
    return LightningTask(section, root)


TASKS = {"torch": torch_task, "lightning": lightning_task}


def partition(index: int) -> Partition:
    x = np.random.default_rng(index).standard_normal((ROWS[index], 6)).astype(np.float32)
    return Partition(index, ROWS[index], {"x": x, "y": (x.sum(1) > 0).astype(np.int64)})


def jobs() -> Iterator[UnitJob]:
    for epoch in range(EPOCHS):
        for index in range(len(ROWS)):
            yield UnitJob(
                unit=Unit("c0", epoch, index),
                hparams={},
                seed=5,
                epochs=EPOCHS,
                visited=tuple(range(index)),
                rows=ROWS,
                partition=partition(index),
                validation=(),
                loader=LoaderSettings(4),
                state=None,
            )


def trained(
    task: Callable[[Path], Task], root: Path, hop: Callable[[UnitResult], TaskState]
) -> Iterator[UnitResult]:
    """The config's units, the state going on by ``hop``."""
    (root / "frozen_net.py").write_text(MODULE)
    state: TaskState | None = None
    for job in jobs():
        stays = checkpoint.stays_in(state)
        result = task(root).train(replace(job, state=state, stays=stays))
        result = replace(result, before={**result.before, **stays})
        yield result
        state = hop(result)


@pytest.mark.parametrize("name", TASKS)
def test_a_hop_without_its_base_is_the_hop_of_all(name: str, tmp_path: Path) -> None:
    refs: list[CheckpointRef] = []

    def by_base(result: UnitResult) -> TaskState:
        url = f"{tmp_path}/checkpoints/c0/{len(refs)}"
        refs.append(checkpoint.stage(result.state).save(url, before=result.before))
        state: TaskState = checkpoint.load(refs[-1])
        return state

    list(trained(TASKS[name], tmp_path, by_base))
    digests = [
        checkpoint.save(result.state, f"{tmp_path}/whole/{number}").digest
        for number, result in enumerate(
            trained(TASKS[name], tmp_path, lambda result: copy.deepcopy(result.state))
        )
    ]
    assert [ref.digest for ref in refs] == digests
    assert len(list((tmp_path / "bases").iterdir())) == 1
    frozen, unfrozen = refs[0].base_bytes, refs[-1].base_bytes
    assert frozen >= 4 * (6 * WIDTH + WIDTH + WIDTH * WIDTH + WIDTH + 2 * WIDTH)
    assert [ref.base_bytes for ref in refs] == [frozen] * 4 + [unfrozen] * 2
    assert unfrozen == frozen - 4 * (WIDTH * WIDTH + WIDTH)
