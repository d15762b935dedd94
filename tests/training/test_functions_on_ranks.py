"""Units of plain PyTorch on two ranks: what they make is what one makes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from units_on_ranks import units

from cerebro_elastic.core.model.units import Strategy
from cerebro_elastic.training.parallel.rank_pool import Ranks
from support.hops import unpacked
from support.same import assert_same

pytestmark = pytest.mark.cluster

DDP, ZERO = Strategy("ddp", 2), Strategy("deepspeed", 2, options={"stage": 2})


def together(ranks: Ranks, *args: Any) -> list[dict[str, Any]]:
    return [unpacked(result) for result in ranks.together(units, *args, members=[0, 1])]


@pytest.mark.parametrize(
    ("name", "strategy"),
    [
        ("ready-made", DDP),
        ("ready-made", ZERO),
        ("weighted", DDP),
        ("items", DDP),
        ("own", DDP),
    ],
)
def test_two_ranks_train_as_one_does(ranks: Ranks, name: str, strategy: Strategy) -> None:
    """Weights, learning rates by a scheduler that watches the validation, and every metric."""
    alone = unpacked(ranks.alone(0, units, name, Strategy(), {}))
    divided = together(ranks, name, strategy, {})[0]
    for key, value in alone["state"]["model"].items():
        assert torch.allclose(divided["state"]["model"][key], value, rtol=1e-5, atol=1e-6), key
    groups = [result["state"]["optimizer"]["param_groups"][0] for result in (divided, alone)]
    assert groups[0]["lr"] == groups[1]["lr"] < 0.1
    assert divided["state"]["step"] == alone["state"]["step"]
    for (metrics, rows, bad), (same, others, _) in zip(divided["results"], alone["results"], strict=True):
        assert metrics == pytest.approx(same, rel=1e-5)
        assert rows == [pytest.approx(row, rel=1e-5) for row in others]
        assert bad is None


def test_random_draws_are_repeated_by_the_same_strategy_also_in_parts(ranks: Ranks) -> None:
    noise = {"noise": 0.1, "dropout": 0.3}
    one, other = together(ranks, "ready-made", DDP, noise)
    assert not set(one["drawn"]) & set(other["drawn"]), "each rank draws its own"
    for cuts in ([], [1, 2]):
        again = together(ranks, "ready-made", DDP, noise, cuts)
        assert_same(again[0]["state"], one["state"])
        assert [result["drawn"] for result in again] == [one["drawn"], other["drawn"]]
        assert again[0]["results"] == one["results"]


@pytest.mark.parametrize("strategy", [DDP, ZERO, Strategy("pipeline", 2)], ids=lambda by: by.parallelism)
def test_a_config_trains_as_if_no_other_had_been_on_its_ranks(ranks: Ranks, strategy: Strategy) -> None:
    first, *_ = together(ranks, "ready-made", strategy, {"lr": 0.1})
    other, *_ = together(ranks, "ready-made", strategy, {"lr": 0.01, "dropout": 0.5})
    again, *_ = together(ranks, "ready-made", strategy, {"lr": 0.1})
    assert_same(again["state"], first["state"])
    assert again["results"] == first["results"] != other["results"]
