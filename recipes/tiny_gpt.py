"""A byte-level GPT, and its text: the Python language reference, which every Python brings along."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional

LENGTH = 64


def load():
    """Windows of 64 bytes and the one after, from 465 KB of text (Python Software Foundation License)."""
    from pydoc_data.topics import topics

    text = "\n\n".join(topics[name] for name in sorted(topics)).encode()
    starts = range(0, len(text) - LENGTH - 1, LENGTH)
    rows = [np.frombuffer(text, np.uint8, LENGTH + 1, start) for start in starts]
    return {"text": np.stack(rows)}


def to_input(batch):
    """Each byte's answer is the byte after it."""
    text = batch.long()
    return text[:, :-1], text[:, 1:]


class Block(nn.Module):
    """Attention to what came before, then a layer for each byte, both on top of what there is."""

    def __init__(self, width):
        super().__init__()
        self.heads = width // 16
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attend, self.attended = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.layer = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        rows, length, width = x.shape
        split = self.attend(self.norms[0](x)).view(rows, length, 3, self.heads, -1)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.attended(seen.transpose(1, 2).reshape(rows, length, width))
        return x + self.layer(self.norms[1](x))


class Gpt(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.embed = nn.Embedding(256, width)
        self.place = nn.Parameter(torch.zeros(LENGTH, width))
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 256, bias=False)
        nn.init.normal_(self.embed.weight, std=0.02)
        self.head.weight = self.embed.weight

    def forward(self, text):
        x = self.embed(text) + self.place
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def loss(scores, answers):
    """In nats a byte."""
    return functional.cross_entropy(scores.flatten(0, 1), answers.flatten())
