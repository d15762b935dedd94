"""Models that are unlike most: the same under every parallelism, or refused, and never silently different."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cerebro_elastic.training.parallel.rank_pool import RankFailed, Ranks
from support.hops import unpacked
from support.odd_models import make, trained
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
