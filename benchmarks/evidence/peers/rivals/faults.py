"""What both systems train while workers are killed, and what a training without faults ends with."""

from __future__ import annotations

from typing import Any

import torch
from functions import few, linear
from torch.nn.functional import cross_entropy

SECONDS = 1.25
"""Theirs: 60 to 90 s."""


def step(model: Any, optimizer: Any) -> None:
    """An iteration."""
    x, y = map(torch.from_numpy, few().values())
    optimizer.zero_grad()
    cross_entropy(model(x), y).backward()
    optimizer.step()


def begun() -> tuple[Any, Any]:
    torch.manual_seed(0)
    return linear(0.001)


def undisturbed(iterations: int) -> dict[str, Any]:
    """The weights after so many iterations."""
    model, optimizer = begun()
    for _ in range(iterations):
        step(model, optimizer)
    weights: dict[str, Any] = model.state_dict()
    return weights


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two models have the same bits."""
    return all(torch.equal(one[name], other[name]) for name in one)
