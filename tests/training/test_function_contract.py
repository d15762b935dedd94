"""The task ``torch`` keeps the contract of tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cerebro_elastic.recipes import TorchSection
from cerebro_elastic.testing import TaskContract
from cerebro_elastic.testing.task_contract import Epoch
from cerebro_elastic.training.functions import FunctionTask
from cerebro_elastic.training.task import Task, TaskState


def model(lr: float) -> tuple[nn.Module, torch.optim.Optimizer, Any]:
    net = nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.2), nn.Linear(5, 3))
    optimizer = torch.optim.AdamW(net.parameters(), lr=lr)
    return net, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)


class TestFunctionTask(TaskContract):
    hparams = {"lr": 0.1}  # noqa: RUF012

    def make(self) -> Task:
        section = TorchSection(model_fn=f"{__name__}:model", loss="cross_entropy")
        # Another folder: all modules below that of the recipe are the user's, and hop with the config.
        return FunctionTask(section, Path(__file__).parent / "users")

    def trained(self, state: TaskState) -> Mapping[str, Any]:
        return dict(state["model"])

    def sequential(self, epochs: Sequence[Epoch]) -> Mapping[str, Any]:
        torch.manual_seed(self.seed)
        net, optimizer, scheduler = model(0.1)
        for epoch in epochs:
            net.train()
            for x, y in epoch.batches:
                optimizer.zero_grad()
                nn.functional.cross_entropy(net(x), y).backward()
                optimizer.step()
            scheduler.step()
        return dict(net.state_dict())
