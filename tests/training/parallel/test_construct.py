"""Parts made without initial values are those made with them, once a state is loaded."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cerebro_elastic.training.parallel.base import Parts
from cerebro_elastic.training.parallel.construct import made
from cerebro_elastic.training.parallel.replicated import Single
from support.same import assert_same


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
def test_a_loaded_model_equals_one_that_is_built_as_usual(kind: type[nn.Module]) -> None:
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


class Unwritten(Plain):
    def __init__(self) -> None:
        super().__init__()
        torch.ones(3000)  # its memory is the next buffer's
        self.register_buffer("unread", torch.empty(3000))
        self.leaf = torch.empty(3000, requires_grad=True)


def test_memory_that_a_constructor_does_not_write_has_zeros() -> None:
    model = made(lambda: parts(Unwritten), loaded=False).model
    assert not model.unread.any()
    assert not model.leaf.any()


def _everything(model: nn.Module) -> dict[str, Any]:
    own = {key: getattr(model, key) for key in ("scale", "number", "noise") if hasattr(model, key)}
    return {**model.state_dict(), **own}


class View(Plain):
    """A plain tensor that is a view of a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.row = self.embed.weight.detach()[0]


@pytest.mark.parametrize(("kind", "copied"), [(Plain, False), (View, True)])
def test_a_state_is_handed_over_where_nothing_else_looks_at_the_models_memory(
    kind: type[nn.Module], copied: bool
) -> None:
    single, made_parts = Single(), parts(kind)
    model, named = single.export(parts(kind))
    given = {name: tensor.clone() for name, tensor in model.items()}
    given["head.weight"] = given["embed.weight"]
    single.load(made_parts, given, named)
    weight = made_parts.model.embed.weight
    assert (weight.data_ptr() == given["embed.weight"].data_ptr()) is not copied
    assert made_parts.model.head.weight is weight
    assert weight in made_parts.optimizer.param_groups[0]["params"]
    assert_same(made_parts.model.state_dict(), model)
    if copied:
        assert torch.equal(made_parts.model.row, weight[0])


@pytest.mark.parametrize(("kind", "hollow"), [(Plain, True), (View, False), (HiddenDraw, False)])
def test_values_to_be_replaced_get_no_memory_where_nothing_else_looks_at_them(
    kind: type[nn.Module], hollow: bool
) -> None:
    def half_frozen() -> Parts:
        made_parts = parts(kind)
        made_parts.model.head.bias.requires_grad_(False)
        for parameter in made_parts.model.parameters():
            made_parts.optimizer.state[parameter] = {"sum": torch.ones(3)}
        return made_parts

    lean = made(half_frozen, loaded=True, hollow=True)
    parameters = dict(lean.model.named_parameters())
    assert {parameter.is_meta for parameter in parameters.values()} == {hollow}
    assert {name: p.requires_grad for name, p in parameters.items()} == {
        "embed.weight": True, "head.bias": False
    }  # fmt: skip
    assert lean.model.head.weight is lean.model.embed.weight
    assert lean.optimizer.param_groups[0]["params"] == [*parameters.values()]
    assert lean.optimizer.state.keys() == {*parameters.values()}
    assert not lean.model.mask.is_meta
