"""The same training as a LightningModule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lightning as L
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from workloads import WORKLOADS, Workload


class Module(L.LightningModule):
    """A model of a workload, named in a recipe or given."""

    def __init__(self, workload: Workload | str, architecture: str, lr: float, weight_decay: float) -> None:
        super().__init__()
        found = WORKLOADS[workload] if isinstance(workload, str) else workload
        self._to_input = found.to_input
        self.model = found.model(architecture)
        self._rates = {"lr": lr, "weight_decay": weight_decay}

    def training_step(self, batch: Sequence[Tensor]) -> Tensor:
        x, y = self._to_input(batch)
        return cross_entropy(self.model(x), y)

    def validation_step(self, batch: Sequence[Tensor]) -> None:
        x, y = self._to_input(batch)
        self.log("val_acc", self.model(x).argmax(1).eq(y).float().mean(), batch_size=len(y))

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), **self._rates)
