"""The identity: one rank, and the model as it is. Every other parallelism reads as a difference from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from cerebro_elastic.parallel.base import Parts


class Single:
    """Training on one rank."""

    def refusal(self, ranks: int) -> str | None:
        """Why it cannot work on so many ranks, or ``None`` if it can."""
        return None if ranks == 1 else f"single takes one rank, not {ranks}"

    def build(self, make: Callable[[], Parts], device: torch.device) -> Parts:
        """The parts, on ``device``; moving a module keeps its parameters the optimizer's."""
        parts = make()
        parts.model.to(device)
        return parts

    def load(self, parts: Parts, model: Mapping[str, Any], optimizer: Mapping[str, Any]) -> None:
        """Take neutral ``state_dict``s of model and optimizer."""
        parts.model.load_state_dict(model)
        parts.optimizer.load_state_dict(dict(optimizer))

    def step(self, parts: Parts, loss: Tensor, clip: float | None) -> None:
        """Backward, clip, step: what anybody writes."""
        parts.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if clip is not None:
            nn.utils.clip_grad_norm_(parts.model.parameters(), clip)
        parts.optimizer.step()

    def export(self, parts: Parts) -> tuple[dict[str, Any], dict[str, Any]]:
        """Neutral ``state_dict``s of model and optimizer; on the CPU, the live tensors."""
        return parts.model.state_dict(), parts.optimizer.state_dict()

    def close(self) -> None:
        """Nothing was taken."""
