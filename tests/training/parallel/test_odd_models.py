"""Models that are unlike most: the same under every parallelism, or refused, and never silently different."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cerebro_elastic.training.parallel.base import Parts, make_parallelism
from cerebro_elastic.training.parallel.rank_pool import RankFailed, Ranks
from cerebro_elastic.training.parallel.replicated import Single
from support.hops import unpacked
from support.odd_models import make, sent, trained
from support.ranks import loops

ZERO: tuple[str, dict[str, Any]] = ("deepspeed", {"config": {"zero_optimization": {"stage": 2}}})


@pytest.mark.cluster
@pytest.mark.parametrize("kind", ["assigned", "normed"])
def test_buffers_are_rank_0s_everywhere(ranks: Ranks, kind: str) -> None:
    """Buffers that are assigned anew, and buffers whose version does not show a write."""
    states = []
    for name, options in (("ddp", {}), ("fsdp", {}), ZERO):
        one, other = map(unpacked, ranks.together(trained, kind, name, options, 4, members=[0, 1]))
        assert name == "ddp" or torch.equal(one["made"], other["made"]), name
        states.append(one["state"])
    by_ddp, *others = states
    for other in others:
        assert other.keys() == by_ddp.keys()
        for name, value in other.items():
            assert torch.allclose(value, by_ddp[name], rtol=1e-5, atol=1e-6), name


@pytest.mark.cluster
@pytest.mark.parametrize(("name", "options"), [("ddp", {}), ZERO])
def test_a_parameter_without_a_gradient_is_refused_where_it_makes_a_difference(
    ranks: Ranks, name: str, options: dict[str, Any]
) -> None:
    with pytest.raises(RankFailed, match=r"TaskError: .* have no part in the loss of a batch"):
        ranks.together(trained, "idle", name, options, 1, members=[0, 1])


@pytest.mark.cluster
def test_a_parameter_without_a_gradient_is_left_alone_where_it_makes_no_difference(ranks: Ranks) -> None:
    before = make("idle").model.state_dict()
    for name, options in (("ddp", {"find_unused_parameters": True}), ("fsdp", {})):
        after = unpacked(ranks.together(trained, "idle", name, options, 2, members=[0, 1])[0])["state"]
        assert torch.equal(after["idle.weight"], before["idle.weight"])
        assert not torch.equal(after["used.weight"], before["used.weight"])


@pytest.mark.cluster
@pytest.mark.parametrize(("name", "options"), [("ddp", {}), ("fsdp", {}), ZERO])
def test_a_unit_leaves_no_group_also_if_it_fails(ranks: Ranks, name: str, options: dict[str, Any]) -> None:
    """Its sockets would have the other ranks wait for this one."""
    ranks.together(trained, "normed", name, options, 2, members=[0, 1])
    assert [ranks.alone(member, loops) for member in (0, 1)] == [0, 0]
    with pytest.raises(RankFailed, match="GroupBroken: rank 0 of 2: a peer is gone"):
        ranks.together(trained, "failing", name, options, 3, members=[0, 1])
    assert [ranks.alone(member, loops) for member in (0, 1)] == [0, 0]


@pytest.mark.cluster
def test_a_state_that_is_sent_may_lie_in_any_order_in_memory(ranks: Ranks) -> None:
    here, there = ranks.together(sent, members=[0, 1])
    assert torch.equal(unpacked(there)["x"], unpacked(here)["x"])


def test_deepspeed_refuses_what_no_optimizer_trains() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    parts = Parts(model, torch.optim.SGD(model[1].parameters(), lr=0.1))
    zero = make_parallelism(*ZERO)
    assert "no optimizer trains: 0.weight, 0.bias; freeze them" in (zero.refusal(parts, 2) or "")
    model[0].requires_grad_(False)
    assert zero.refusal(parts, 2) is None


class Precise(torch.optim.Optimizer):
    """Keeps parameters in bfloat16, and what they would be in float32."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        del closure
        for parameter in self.param_groups[0]["params"]:
            master: Tensor = self.state[parameter].setdefault("master", parameter.float())
            master -= 0.001 * parameter.grad.float()
            parameter.copy_(master)


def test_an_optimizer_keeps_the_precision_of_its_state_over_a_hop() -> None:
    def parts() -> Parts:
        torch.manual_seed(0)
        model = nn.Linear(4, 4, dtype=torch.bfloat16)
        return Parts(model, Precise(model.parameters()))

    def step(single: Single, parts: Parts) -> None:
        x = torch.ones(2, 4, dtype=torch.bfloat16)
        single.step(parts, x, x, nn.functional.mse_loss)

    single, whole = Single(), parts()
    step(single, whole)
    hopped = parts()
    model, named = single.export(whole)
    copied = {
        name: {key: value.clone() for key, value in slots.items()} for name, slots in named["state"].items()
    }
    single.load(hopped, {name: value.clone() for name, value in model.items()}, {**named, "state": copied})
    for each in (whole, hopped):
        for _ in range(3):
            step(single, each)
    masters = [each.optimizer.state[each.model.weight]["master"] for each in (whole, hopped)]
    assert masters[1].dtype == torch.float32
    assert torch.equal(*masters)
