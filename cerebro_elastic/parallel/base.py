"""Parallelism: how a unit uses the ranks that it has.

A parallelism is found by name (entry-point group ``cerebro.parallel``; a factory without
arguments) and made for one unit. What goes in and comes out is *neutral*: full tensors on the
CPU, so that the next unit may have another parallelism or number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler


@dataclass(frozen=True)
class Parts:
    """What is trained, and by what."""

    model: nn.Module
    optimizer: Optimizer
    scheduler: LRScheduler | None = None


class Parallelism(Protocol):
    """One unit's way of training on one or more ranks; every rank calls every method."""

    def refusal(self, ranks: int) -> str | None:
        """Why it cannot work on so many ranks, or ``None`` if it can."""

    def build(self, make: Callable[[], Parts], device: torch.device) -> Parts:
        """The parts, made by ``make`` on the CPU and spread over the ranks' devices."""

    def load(self, parts: Parts, model: Mapping[str, Any], optimizer: Mapping[str, Any]) -> None:
        """Take neutral ``state_dict``s of model and optimizer; they are not written into later
        if the optimizer's holds copies (``train.optimizer_state.from_names``)."""

    def step(self, parts: Parts, loss: Tensor, clip: float | None) -> None:
        """Gradients of ``loss``, their total norm clipped to ``clip``, one step of the optimizer."""

    def export(self, parts: Parts) -> tuple[dict[str, Any], dict[str, Any]]:
        """Neutral ``state_dict``s of model and optimizer."""

    def close(self) -> None:
        """Give back what the unit took, such as its process group."""
