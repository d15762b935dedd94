"""Optimizer state by name: nothing is lost, nothing foreign is taken."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

from cerebro_elastic.hop.checkpoint.tree import flatten
from cerebro_elastic.hop.optimizer_state import take, to_names
from support.same import assert_same


class Tied(nn.Module):
    """Two layers that share a weight, and one that is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.frozen = nn.Linear(4, 4).requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.frozen(self.first(x))
        out: torch.Tensor = self.second(hidden)
        return out


def with_code(model: nn.Module) -> torch.optim.Optimizer:
    """As heavyball's optimizers, whose groups name the class."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer.param_groups[0]["__class__"] = torch.optim.SGD
    return optimizer


Make = Callable[[nn.Module], torch.optim.Optimizer]

OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, nesterov=True),
    "adamw": lambda m: torch.optim.AdamW(m.parameters(), lr=0.01, amsgrad=True),
    "rprop": lambda m: torch.optim.Rprop(m.parameters(), lr=0.01),
    "lbfgs": lambda m: torch.optim.LBFGS([p for p in m.parameters() if p.requires_grad], lr=0.1),
    "named": lambda m: torch.optim.Adam(m.named_parameters(), lr=0.01),
    "code": with_code,
    "groups": lambda m: torch.optim.AdamW(
        [
            {"params": [p for n, p in m.named_parameters() if "bias" in n], "weight_decay": 0.0},
            {"params": [p for n, p in m.named_parameters() if "bias" not in n], "lr": 0.003},
        ],
        lr=0.01,
    ),
}


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, seeds: range) -> None:
    for seed in seeds:
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(seed))

        def closure(x: torch.Tensor = x) -> torch.Tensor:
            optimizer.zero_grad()
            loss: torch.Tensor = model(x).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_on_from_names_is_training_on(name: str) -> None:
    make = OPTIMIZERS[name]
    torch.manual_seed(0)
    whole = Tied()
    optimizer = make(whole)
    steps(whole, optimizer, range(3))
    named = copy.deepcopy(to_names(optimizer, whole))

    hopped = Tied()
    hopped.load_state_dict(whole.state_dict())
    resumed = make(hopped)
    flatten(named, copies=False)  # it can be stored
    take(resumed, hopped, named)
    assert resumed.param_groups[0].keys() == optimizer.param_groups[0].keys()
    steps(whole, optimizer, range(3, 6))
    steps(hopped, resumed, range(3, 6))

    assert_same(hopped.state_dict(), whole.state_dict())
    assert_same(to_names(resumed, hopped), to_names(optimizer, whole))


def test_names_are_independent_of_the_order_of_parameters() -> None:
    model = Tied()
    optimizer = torch.optim.AdamW(model.parameters())
    steps(model, optimizer, range(2))
    named = to_names(optimizer, model)
    assert "second.weight" not in named["state"], "a tied parameter bears its first name"
    assert "frozen.weight" not in named["state"]

    backwards = torch.optim.AdamW(list(model.parameters())[::-1])
    take(backwards, model, named)
    expected = optimizer.state[model.first.bias]["exp_avg"]
    assert torch.equal(backwards.state[model.first.bias]["exp_avg"], expected)
