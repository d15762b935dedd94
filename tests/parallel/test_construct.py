"""Parts made without initial values are those made with them, once a state is loaded."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cerebro_elastic.parallel.base import Parts
from cerebro_elastic.parallel.construct import made
from cerebro_elastic.parallel.single import Single
from cerebro_elastic.testing.same import assert_same


class Plain(nn.Module):
    """Initialised by the functions of ``nn.init``, a tie among them."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(8, 4)
        self.head = nn.Linear(4, 8)
        self.head.weight = self.embed.weight
        nn.init.trunc_normal_(self.embed.weight, std=0.02)
        self.register_buffer("mask", torch.arange(4.0))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.embed(x) * self.mask)
        return out


class RandomBuffer(Plain):
    """A buffer that no state has, drawn after the parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("noise", torch.randn(4), persistent=False)


class PlainAttribute(Plain):
    """A tensor from a parameter's initial value."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = [self.embed.weight.detach().norm()]


class HiddenDraw(Plain):
    """A number that depends on the state of the generator."""

    def __init__(self) -> None:
        super().__init__()
        self.number = float(torch.rand(()))


def parts(kind: type[nn.Module]) -> Parts:
    model = kind()
    return Parts(model, torch.optim.Adam(model.parameters(), lr=0.1))


@pytest.mark.parametrize("kind", [Plain, RandomBuffer, PlainAttribute, HiddenDraw])
def test_what_is_loaded_is_as_if_made_as_ever(kind: type[nn.Module]) -> None:
    single, device = Single(), torch.device("cpu")
    torch.manual_seed(3)
    first = parts(kind)
    state = single.export(first)
    torch.manual_seed(3)
    lean = single.build(lambda: parts(kind), device, loaded=True)
    single.load(lean, *state)
    assert_same(_everything(lean.model), _everything(first.model))
    assert lean.model.head.weight is lean.model.embed.weight


def test_initial_values_are_computed_for_a_first_unit_only() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    made(lambda: parts(Plain), loaded=True)
    assert torch.equal(torch.get_rng_state(), before)
    expected = parts(Plain).model.state_dict()
    torch.manual_seed(3)
    assert_same(made(lambda: parts(Plain), loaded=False).model.state_dict(), expected)


def _everything(model: nn.Module) -> dict[str, Any]:
    own = {key: getattr(model, key) for key in ("scale", "number", "noise") if hasattr(model, key)}
    return {**model.state_dict(), **own}
