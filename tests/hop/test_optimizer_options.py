"""A child sets anew what its hyper-parameters say, and inherits everything else."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from cerebro_elastic.hop.optimizer_state import constructor_options, override_options


def made(lr: float, momentum: float, scheduled: bool) -> tuple[nn.Module, torch.optim.Optimizer, object]:
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
    return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5) if scheduled else None


def trained(lr: float, scheduled: bool) -> tuple[dict[str, object], dict[str, object] | None]:
    model, optimizer, scheduler = made(lr, 0.9, scheduled)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(3, 2)).sum().backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()  # type: ignore[attr-defined]
    state = copy.deepcopy(optimizer.state_dict())
    return state, copy.deepcopy(scheduler.state_dict()) if scheduler else None  # type: ignore[attr-defined]


@pytest.mark.parametrize("scheduled", [False, True])
def test_rates_are_set_anew_and_moments_inherited(scheduled: bool) -> None:
    state, schedule = trained(0.8, scheduled)
    _, optimizer, scheduler = made(0.2, 0.5, scheduled)
    own, theirs = constructor_options(optimizer), constructor_options(made(0.8, 0.9, scheduled)[1])
    optimizer.load_state_dict(state)
    if scheduler is not None:
        scheduler.load_state_dict(schedule)  # type: ignore[attr-defined]
    override_options(optimizer, [scheduler] if scheduler else [], theirs, own)
    (group,) = optimizer.param_groups
    assert group["momentum"] == 0.5
    assert group["lr"] == pytest.approx(0.05 if scheduled else 0.2), "halved twice, as its parent's was"
    moments = [slots["momentum_buffer"] for slots in optimizer.state_dict()["state"].values()]
    theirs = [slots["momentum_buffer"] for slots in state["state"].values()]  # type: ignore[attr-defined]
    assert all(torch.equal(one, other) for one, other in zip(moments, theirs, strict=True))
    if scheduler is not None:
        optimizer.step()
        scheduler.step()  # type: ignore[attr-defined]
        assert group["lr"] == pytest.approx(0.025)


@pytest.mark.parametrize("scheduled", [False, True])
def test_the_same_hyper_parameters_change_nothing(scheduled: bool) -> None:
    state, schedule = trained(0.8, scheduled)
    _, optimizer, scheduler = made(0.8, 0.9, scheduled)
    own, theirs = constructor_options(optimizer), constructor_options(made(0.8, 0.9, scheduled)[1])
    optimizer.load_state_dict(state)
    if scheduler is not None:
        scheduler.load_state_dict(schedule)  # type: ignore[attr-defined]
    override_options(optimizer, [scheduler] if scheduler else [], theirs, own)
    assert optimizer.state_dict()["param_groups"] == state["param_groups"]
    if scheduler is not None:
        assert scheduler.state_dict() == schedule  # type: ignore[attr-defined]
