"""The identity: one rank, and the model as it is. Every other parallelism reads as a difference from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from cerebro_elastic.training.parallel.base import LossOf, Make, Parts, Portion
from cerebro_elastic.training.parallel.construct import made
from cerebro_elastic.training.parallel.handover import hand_over
from cerebro_elastic.training.parallel.optimizer_state import take, to_names


class Single:
    """Training on one rank."""

    def refusal(self, parts: Parts, ranks: int) -> str | None:  # noqa: ARG002
        """Anything can be trained on one rank."""
        return None if ranks == 1 else f"single takes one rank, not {ranks}"

    def portion(self, rows: int) -> Portion:
        """The whole batch."""
        return Portion(0, rows, 1.0)

    def build(self, make: Make, device: torch.device, *, loaded: bool = False) -> Parts:
        """The parts, on ``device``; moving a module keeps its parameters the optimizer's."""
        parts = made(make, loaded=loaded)
        parts.model.to(device)
        return parts

    def load(
        self, parts: Parts, model: Mapping[str, Any] | None, optimizer: Mapping[str, Any] | None
    ) -> None:
        """Take a neutral state; where it can be, it is trained in as it lies."""
        assert model is not None
        assert optimizer is not None
        hand_over(parts.model, model)
        take(parts.optimizer, parts.model, optimizer)

    def step(
        self, parts: Parts, x: Any, y: Any, loss_of: LossOf, *, share: float = 1.0, clip: float | None = None
    ) -> Tensor:
        """Backward, clip, step: what anybody writes."""
        assert share == 1.0
        loss = loss_of(parts.model(x), y)
        parts.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if clip is not None:
            nn.utils.clip_grad_norm_(parts.model.parameters(), clip)
        parts.optimizer.step()
        return loss.detach()

    def export(self, parts: Parts) -> tuple[dict[str, Any], dict[str, Any]]:
        """The neutral state; on the CPU, the live tensors."""
        return parts.model.state_dict(), to_names(parts.optimizer, parts.model)

    def close(self) -> None:
        """Nothing to release."""
