"""The memory of a model, by optimizer and parallelism."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from cerebro_elastic.errors import TaskError
from cerebro_elastic.training.parallel.base import Parts, check_room, make_parallelism, weight

CPU = torch.device("cpu")
P = 4 * 1000


def parts(kind: Any = torch.optim.AdamW, **options: Any) -> Parts:
    model = nn.Sequential(nn.Linear(10, 100, bias=False), nn.Linear(10, 50, bias=False).requires_grad_(False))
    return Parts(model, kind(model.parameters(), lr=0.1, **options))


@pytest.mark.parametrize(
    ("made", "slots"),
    [
        (parts(), 2),
        (parts(capturable=True), 2),
        (parts(torch.optim.SGD), 0),
        (parts(torch.optim.SGD, momentum=0.9), 1),
        (parts(torch.optim.LBFGS), 0),
    ],
)
def test_slots_are_those_that_a_step_makes(made: Parts, slots: int) -> None:
    state = torch.optim.lr_scheduler.StepLR(made.optimizer, 1)  # patches the optimizer's step
    assert weight(made) == (P + P // 2, P, slots * P)
    assert not made.optimizer.state
    assert state.last_epoch == 0


@pytest.mark.parametrize(
    ("name", "options", "needs"),
    [
        ("single", {}, 4.5 * P),
        ("ddp", {}, 4.5 * P),
        ("fsdp", {}, 2.25 * P),
        ("deepspeed", {"stage": 1}, 3.5 * P),
        ("deepspeed", {"stage": 2}, 3 * P),
        ("deepspeed", {"stage": 3}, 2.25 * P),
    ],
)
def test_a_model_that_does_not_fit_is_refused(name: str, options: dict[str, Any], needs: float) -> None:
    by = make_parallelism(name, options)
    check_room(parts(), by, 2, CPU, int(needs))
    with pytest.raises(TaskError, match=r"at least 0.0.* MB .* take more ranks"):
        check_room(parts(), by, 2, CPU, int(needs) - 1)


def test_offloaded_values_are_not_on_the_gpu() -> None:
    cuda = torch.device("cuda")
    check_room(parts(), make_parallelism("fsdp", {"offload": True}), 2, cuda, 0)
    config = {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}
    check_room(parts(), make_parallelism("deepspeed", {"config": config}), 2, cuda, int(1.5 * P))
