"""A model and its data. Nothing in here knows of cerebro-elastic."""

import lightning as L
import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy


def load():
    """Columns by name: arrays with one row for each example. Put your own here."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((2000, 8), dtype=np.float32)
    y = ((x[:, 0] * x[:, 1] > 0) ^ (x[:, 2] > 0.5)).astype(np.int64)
    return {"x": x, "y": y}


class Net(L.LightningModule):
    def __init__(self, lr, width):
        super().__init__()
        self.lr = lr
        self.layers = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 2))

    def training_step(self, batch):
        x, y = batch  # a tuple of the columns, in their order
        loss = cross_entropy(self.layers(x), y)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch):
        x, y = batch
        scores = self.layers(x)
        self.log("val_loss", cross_entropy(scores, y))
        self.log("val_acc", (scores.argmax(1) == y).float().mean())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr)
