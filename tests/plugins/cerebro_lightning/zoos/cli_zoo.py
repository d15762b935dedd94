# ruff: noqa: ARG002 - constructors have what save_hyperparameters keeps
"""What a project with a LightningCLI has: a module without an optimizer, its data, and a CLI of its own."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset


class Encoder(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, width), nn.ReLU())
        self.width = width

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(x)
        return result


class Net(L.LightningModule):
    def __init__(self, encoder: Encoder, classes: int, dropout: float = 0.1, epochs: int = 0) -> None:
        super().__init__()
        self.save_hyperparameters(ignore=["encoder"])
        self.encoder = encoder
        self.head = nn.Sequential(nn.Dropout(dropout), nn.Linear(encoder.width, classes))

    def training_step(self, batch: Any) -> torch.Tensor:
        return self._loss(batch, "train_loss")

    def validation_step(self, batch: Any) -> None:
        self._loss(batch, "val_loss")

    def _loss(self, batch: Any, name: str) -> torch.Tensor:
        x, y = batch
        loss = cross_entropy(self.head(self.encoder(x)), y)
        self.log(name, loss, on_epoch=True)
        return loss


class WithOptimizer(Net):
    """As templates of Hydra have it: the optimizer is a partial function of the parameters."""

    def __init__(self, optimizer: Any, encoder: Encoder, classes: int) -> None:
        super().__init__(encoder, classes)
        self.optimizer = optimizer

    def configure_optimizers(self) -> Any:
        return self.optimizer(self.parameters())


class Data(L.LightningDataModule):
    classes = 3

    def __init__(self, rows: int = 48, batch_size: int = 8) -> None:
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage: str) -> None:
        x = torch.randn(self.hparams["rows"], 6, generator=torch.Generator().manual_seed(0))
        self.rows = TensorDataset(x, (x[:, 0] > 0).long() + (x[:, 1] > 1).long())

    def train_dataloader(self) -> Any:
        return DataLoader(self.rows, self.hparams["batch_size"], shuffle=True)

    def val_dataloader(self) -> Any:
        return DataLoader(self.rows, 20)


class Cli(LightningCLI):
    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.add_lightning_class_args(EarlyStopping, "stopping")
        parser.set_defaults({"stopping.monitor": "val_loss", "trainer.gradient_clip_val": 0.5})
        parser.link_arguments("trainer.max_epochs", "model.init_args.epochs")
        parser.link_arguments("data.classes", "model.init_args.classes", apply_on="instantiate")


class Backwards(Cli):
    """The data depend on the model."""

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        super().add_arguments_to_parser(parser)
        parser.link_arguments(
            "model.init_args.dropout", "data.init_args.rows", compute_fn=lambda p: 48 + int(10 * p)
        )
