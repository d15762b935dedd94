"""GPipe over two ranks: microbatches add up to the batch, in training and in evaluation."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from cerebro_elastic.errors import RecipeError
from cerebro_elastic.training.parallel.base import Parts, make_parallelism
from cerebro_elastic.training.parallel.rank_pool import RankFailed, Ranks
from support.hops import evaluated, failing, unit, unpacked

STEPS = range(6)


@pytest.mark.cluster
@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_microbatches_add_up_to_the_batch(ranks: Ranks, optimizer: str) -> None:
    whole = unpacked(ranks.together(unit, "single", {}, optimizer, None, STEPS, members=[0])[0])
    options = {"microbatches": 4, "split": ["layers.1"]}
    done = ranks.together(unit, "pipeline", options, optimizer, None, STEPS, members=[0, 1])
    first, last = map(unpacked, done)
    assert first["losses"] == [0.0] * len(STEPS), "the loss is the last rank's"
    assert last["losses"] == pytest.approx(whole["losses"], rel=1e-5)
    for name, tensor in whole["model"].items():
        if name != "calls":
            torch.testing.assert_close(first["model"][name], tensor, rtol=1e-5, atol=1e-6)
    # Batches of 8, 7 and 1 rows make 4, 1 and 1 microbatches.
    assert first["model"]["calls"] == 2 * (4 + 1 + 1)


@pytest.mark.cluster
def test_every_rank_gets_the_output_in_evaluation(ranks: Ranks) -> None:
    [expected] = ranks.together(evaluated, "single", members=[0])
    for result in ranks.together(evaluated, "pipeline", members=[0, 1]):
        assert result == pytest.approx(expected, rel=1e-5)


@pytest.mark.cluster
def test_exceptions_of_the_users_code_come_out_unchanged(ranks: Ranks) -> None:
    ranks.start(failing, "pipeline", members=[0, 1])
    with pytest.raises(RankFailed, match="GroupBroken: rank 0 of 2: a peer is gone"):
        ranks.answer(0)
    with pytest.raises(RankFailed, match="ZeroDivisionError: the user's own"):
        ranks.answer(1)


class Two(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return out


def test_refusals_of_the_pipeline() -> None:
    model = Two()
    parts = Parts(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert make_parallelism("pipeline").refusal(parts, 2) is None
    for ranks, said in [
        (1, "two ranks or more, not 1: take single, or give a unit more ranks"),
        (3, "2 blocks in a row, too few"),
    ]:
        assert said in (make_parallelism("pipeline").refusal(parts, ranks) or "")
    assert "calls no module 'layer.1'" in (
        make_parallelism("pipeline", {"split": ["layer.1"]}).refusal(parts, 2) or ""
    )
    model.requires_grad_(False)
    assert make_parallelism("pipeline").refusal(parts, 2) == "nothing is trainable"
    with pytest.raises(RecipeError, match="microbatches is 0, expected a number from 1 on"):
        make_parallelism("pipeline", {"microbatches": 0})
