"""The task ``torch`` keeps the contract of tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cerebro_elastic.recipes import TorchSection
from cerebro_elastic.testing.task_contract import Epoch, TaskContract
from cerebro_elastic.training.functions import FunctionTask
from cerebro_elastic.training.task import Task, TaskState


def model(
    lr: float,
    width: int = 5,
    ratio: float = 1.0,
    scale: float = 1.0,
    activation: str | None = None,
    bias: bool = True,
    layers: list[int] | None = None,
    options: dict[str, Any] | None = None,
) -> tuple[nn.Module, torch.optim.Optimizer, Any]:
    options, layers = options or {}, layers or []
    decay = options.pop("decay", 0.01)  # as users do, with the mapping that they get
    layers.append(round(width * ratio))

    class Scale(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * scale

    parts = [nn.Linear(a, b, bias=bias) for a, b in zip([4, *layers], [*layers, 3], strict=True)]
    middle = [nn.Dropout(0.2), Scale(), *([getattr(nn, activation)()] if activation else [])]
    net = nn.Sequential(*parts[:-1], *middle, parts[-1])
    optimizer = torch.optim.AdamW(net.parameters(), lr=lr, weight_decay=decay)
    return net, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)


VARIANTS: dict[str, dict[str, Any]] = {
    "a float of the optimizer": {"lr": 0.0},
    "a float of the architecture": {"ratio": 0.6},
    "a float in a closure": {"scale": 0.5},
    "an int": {"width": 7},
    "a text, not null": {"activation": "Sigmoid"},
    "a bool": {"bias": False},
    "a list": {"layers": [6, 5]},
    "a mapping": {"options": {"decay": 0.9}},
    "batch_size": {"batch_size": 2},
}


class TestFunctionTask(TaskContract):
    hparams = {"lr": 0.1}  # noqa: RUF012
    variants = VARIANTS

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
