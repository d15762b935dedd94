"""Checks that a config's losses and parameters are finite."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from cerebro_elastic.training.finite_arrays import not_finite_metric


def not_finite(metrics: Mapping[str, float], parameters: Iterable[tuple[str, Tensor]] = ()) -> str | None:
    """Describe the first loss (a metric with "loss" in its name) or trained parameter that is NaN or
    infinite.

    It reads each parameter once and waits for the device once, which takes less time than a copy of them.

    Returns:
        The description; ``None`` if all are finite.
    """
    if reason := not_finite_metric(metrics):
        return reason
    trained = {n: _real(p) for n, p in parameters if p.requires_grad and not is_lazy(p) and p.numel()}
    # The extremes of a tensor are NaN or infinite if anything in it is; a sum could overflow.
    extremes = [extreme for p in trained.values() for extreme in torch.aminmax(p)]
    if not extremes or torch.stack(extremes).isfinite().all():
        return None
    name, parameter = next((n, p) for n, p in trained.items() if not p.isfinite().all())
    bad = int((~parameter.isfinite()).sum())
    return f"the parameter {name} has {bad} of {parameter.numel()} values that are NaN or infinite"


def _real(parameter: Tensor) -> Tensor:
    tensor = parameter.detach()
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor
