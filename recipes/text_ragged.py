"""Sentences of the documentation of Python's own modules as bytes, and a recurrent net that reads them."""

import importlib
import inspect
import re

import lightning as L
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence

MODULES = (
    "argparse",
    "asyncio.base_events",
    "decimal",
    "statistics",
    "tarfile",
    "threading",
    "unittest.mock",
)


def load():
    """The sentences, each an array of its bytes, and the number of its module."""
    text, label = [], []
    for number, name in enumerate(MODULES):
        source = inspect.getsource(importlib.import_module(name))
        for documentation in re.findall(r'"""(.+?)"""', source, re.DOTALL):
            for sentence in re.split(r"(?<=[.:])\s+", documentation):
                encoded = " ".join(sentence.split()).encode()[:200]
                if len(encoded) > 10:
                    text.append(np.frombuffer(encoded, np.uint8))
                    label.append(number)
    return {"text": text, "label": np.array(label)}


class Sentences(L.LightningModule):
    def __init__(self, lr, width):
        super().__init__()
        self.lr = lr
        self.letters = nn.Embedding(256, width)
        self.reader = nn.GRU(width, width, batch_first=True)
        self.module = nn.Linear(width, len(MODULES))

    def forward(self, text, lengths):
        packed = pack_padded_sequence(
            self.letters(text.long()), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        return self.module(self.reader(packed)[1][-1])

    def training_step(self, batch):
        text, lengths, label = batch
        loss = F.cross_entropy(self(text, lengths), label)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch):
        text, lengths, label = batch
        self.log("val_acc", (self(text, lengths).argmax(1) == label).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)
