"""The first loss or parameter that is NaN or infinite is named."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from cerebro_elastic.training.metrics import not_finite


def parameters(*values: Tensor) -> list[tuple[str, nn.Parameter]]:
    return [(f"p{at}", nn.Parameter(value)) for at, value in enumerate(values)]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.complex64]
)
def test_the_first_parameter_is_named(bad: float, dtype: torch.dtype) -> None:
    broken = torch.ones(2, 3, dtype=dtype)
    broken[1, 1] = bad
    found = not_finite({}, parameters(torch.ones(3), torch.empty(0), broken, broken))
    assert found is not None
    assert found.startswith("the parameter p2 has 1 of ")


def test_a_loss_comes_first_and_other_metrics_may_be_anything() -> None:
    bad = parameters(torch.tensor([math.nan]))
    assert not_finite({"val_Loss": math.inf}, bad) == "the metric val_Loss is inf"
    assert not_finite({"perplexity": math.inf, "loss": 1.0}) is None


def test_large_values_are_finite_and_constants_are_not_looked_at() -> None:
    huge = torch.full((1000,), torch.finfo(torch.float32).max)
    mask = nn.Parameter(torch.tensor(-math.inf), requires_grad=False)
    count = nn.Parameter(torch.tensor(3), requires_grad=False)
    assert not_finite({}, [*parameters(huge), ("mask", mask), ("count", count)]) is None
