"""Sentences of the documentation of Python's own modules as bytes, and a recurrent net that reads them."""

import importlib
import inspect
import re

import numpy as np
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

MODULES = "argparse", "asyncio.base_events", "decimal", "statistics", "tarfile", "threading", "unittest.mock"


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


def to_input(batch):
    text, lengths, label = batch
    return (text.long(), lengths), label


class Sentences(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.letters = nn.Embedding(256, width)
        self.reader = nn.GRU(width, width, batch_first=True)
        self.module = nn.Linear(width, len(MODULES))

    def forward(self, x):
        text, lengths = x
        letters = self.letters(text)
        letters = pack_padded_sequence(letters, lengths.cpu(), batch_first=True, enforce_sorted=False)
        return self.module(self.reader(letters)[1][-1])
