"""Clicks on advertisements, shaped as Criteo's: 13 numbers and 26 categories a row; and the MLP 1000-500."""

import numpy as np
import torch
from torch import nn

ROWS, VALUES = 40_000, 280


def load():
    """Drawn: each value of a category has a weight; a row is clicked with the odds of its weights."""
    rng = np.random.default_rng(0)
    numbers = rng.lognormal(size=(ROWS, 13)).astype(np.float32)
    categories = (VALUES * rng.random((ROWS, 26)) ** 4).astype(np.int32)  # few values are frequent
    odds = np.take_along_axis(rng.normal(size=(VALUES, 26)), categories, 0).sum(1) / 2 - 1.5
    clicked = rng.random(ROWS) < 1 / (1 + np.exp(-odds))
    return {"numbers": numbers, "categories": categories, "clicked": clicked.astype(np.int64)}


def to_input(batch):
    numbers, categories, clicked = batch
    return (torch.log1p(numbers), categories + VALUES * torch.arange(26)), clicked


class Clicks(nn.Module):
    """A row is one-hot in its categories: the first layer adds up the rows of its weights that are one."""

    def __init__(self):
        super().__init__()
        self.numbers, self.categories = nn.Linear(13, 1000), nn.EmbeddingBag(26 * VALUES, 1000, mode="sum")
        self.rest = nn.Sequential(nn.ReLU(), nn.Linear(1000, 500), nn.ReLU(), nn.Linear(500, 2))
        nn.init.normal_(self.categories.weight, std=0.01)

    def forward(self, row):
        numbers, categories = row
        return self.rest(self.numbers(numbers) + self.categories(categories))
