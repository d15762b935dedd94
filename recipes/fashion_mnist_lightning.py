"""CNNs for Fashion-MNIST (Xiao et al. 2017), and its files as they come."""

import gzip
import os
from pathlib import Path

import lightning as L
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def load():
    """Images of 28 x 28 pixels as bytes, and labels from 0 to 9."""
    return {"train": _split("train"), "valid": _split("t10k")}


def _split(name):
    folder = Path(os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist"))
    if not (folder / f"{name}-images-idx3-ubyte.gz").exists():
        raise FileNotFoundError(
            f"{folder} has no {name}-images-idx3-ubyte.gz: apt-get install dataset-fashion-mnist, or name "
            "the folder of Fashion-MNIST's four files in FASHION_MNIST"
        )
    with gzip.open(folder / f"{name}-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)
    with gzip.open(folder / f"{name}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8).astype(np.int64)
    return {"image": images, "label": labels}


class Fashion(L.LightningModule):
    def __init__(self, lr, width):
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(
            nn.Conv2d(1, width, 3), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(25 * 2 * width, 64), nn.ReLU(), nn.Linear(64, 10),
        )  # fmt: skip

    def forward(self, image):
        return self.net(image.float() / 255)

    def training_step(self, batch):
        image, label = batch
        loss = F.cross_entropy(self(image), label)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch):
        image, label = batch
        scores = self(image)
        self.log("val_loss", F.cross_entropy(scores, label))
        self.log("val_acc", (scores.argmax(1) == label).float().mean())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr)
