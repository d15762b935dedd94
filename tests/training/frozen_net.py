"""A user's models with frozen layers."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import BackboneFinetuning
from torch import Tensor, nn

WIDTH = 600
UNFREEZES = 2
"""The epoch in which the second layer is trained, too."""


class Net(nn.Module):
    """Two frozen layers, and a head."""

    def __init__(self, *, strided: bool = True) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(6, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        self.backbone.requires_grad_(False)
        if strided:
            first: Any = self.backbone[0]
            first.weight.data = first.weight.data.T.contiguous().T
        self.table: Tensor
        self.register_buffer("table", torch.arange(WIDTH * 2.0))
        # Batches that ranks share have other statistics.
        self.norm = nn.BatchNorm1d(WIDTH) if strided else nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.norm(self.backbone(x) + self.table[:WIDTH]))


def model() -> Any:
    net = Net()
    return net, torch.optim.AdamW([p for p in net.parameters() if p.requires_grad])


def dense_model() -> Any:
    net = Net(strided=False)
    return net, torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.05, momentum=0.9)


def train(model: Any, optimizer: Any, batches: Any, epoch: int) -> dict[str, float]:
    """In the middle of a unit of a later epoch, the second layer is unfrozen."""
    for number, (x, y) in enumerate(batches):
        layer = getattr(model, "module", model).get_submodule("backbone.2")
        if number and epoch == UNFREEZES and not layer.weight.requires_grad:
            layer.requires_grad_(True)
            optimizer.add_param_group({"params": list(layer.parameters())})
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return {}


class Module(pl.LightningModule):
    def __init__(self, *, strided: bool = True) -> None:
        super().__init__()
        self.net = Net(strided=strided)
        self.backbone = self.net.backbone[2]

    def training_step(self, batch: Any, _: int) -> Tensor:
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW([p for p in self.parameters() if p.requires_grad])


def finetuning() -> pl.Callback:
    return BackboneFinetuning(UNFREEZES, train_bn=False)
