"""Units of models that wrappers and optimizers are easily wrong about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from cerebro_elastic.training.parallel.base import Parts, make_parallelism
from cerebro_elastic.training.parallel.collectives import ranks
from support.hops import packed

_ROWS = 6


class Assigned(nn.Module):
    """A running mean that is a new tensor at each step, and that the output depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.inward, self.outward = nn.Linear(4, 6), nn.Linear(6, 4)
        self.mean: Tensor
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        output: Tensor = self.outward(torch.tanh(self.inward(x + self.mean)))
        return output


class Idle(nn.Module):
    """A layer that has no part in the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.idle = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.used(x)
        return output


class Normed(nn.Module):
    """With running statistics, which torch writes to without counting it."""

    def __init__(self) -> None:
        super().__init__()
        self.inward, self.norm = nn.Linear(4, 6), nn.BatchNorm1d(6)
        self.outward = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.outward(self.norm(self.inward(x)))
        return output


class Failing(nn.Module):
    """Rank 1 fails in the second step."""

    def __init__(self) -> None:
        super().__init__()
        self.inward, self.outward = nn.Linear(4, 8), nn.Linear(8, 4)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == 2 and ranks()[0] == 1:
            raise ValueError("not to the liking of rank 1")
        output: Tensor = self.outward(self.inward(x))
        return output


KINDS: Mapping[str, type[nn.Module]] = {
    "assigned": Assigned,
    "failing": Failing,
    "idle": Idle,
    "normed": Normed,
}


def make(kind: str) -> Parts:
    """The model with AdamW."""
    torch.manual_seed(0)
    model = KINDS[kind]()
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=0.01))


def trained(kind: str, name: str, options: Mapping[str, Any], steps: int) -> bytes:
    """The model's state after some steps, and on every rank what it then makes of the same rows."""
    parallelism = make_parallelism(name, options)
    try:
        assert parallelism.refusal(make(kind), ranks()[1]) is None
        parts = parallelism.build(lambda: make(kind), torch.device("cpu"))
        for step in range(steps):
            x = torch.randn(_ROWS, 4, generator=torch.Generator().manual_seed(step))
            x += torch.arange(float(_ROWS))[:, None]  # so that ranks see other means
            part = parallelism.portion(_ROWS)
            own = x[part.start : part.stop]
            parallelism.step(parts, own, own, nn.functional.mse_loss, share=part.share)
        parts.model.eval()
        with torch.no_grad():
            output = parts.model(torch.ones(2, 4))
        return packed({"state": parallelism.export(parts)[0], "made": output})
    finally:
        parallelism.close()
