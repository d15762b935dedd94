"""Which ranks of a pipeline hold which tensors of the model, by their names in the whole model."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

from cerebro_elastic.extending.parallelism import Parts
from cerebro_elastic.extending.state import buffers_of, parameters_of

Holders: TypeAlias = Mapping[str, tuple[int, ...]]
"""By name, tied names included: ranks, in order. The first is the tensor's *home*: it counts the tensor."""


def holders(model: nn.Module, stages: Sequence[Collection[nn.Module]]) -> dict[str, tuple[int, ...]]:
    """Each tensor of ``model`` is held where the rank's ``stages`` use it, and by rank 0 if none does."""
    used = [{id(tensor) for part in stage for tensor in _tensors(part).values()} for stage in stages]
    return {
        name: tuple(rank for rank, ids in enumerate(used) if id(tensor) in ids) or (0,)
        for name, tensor in _tensors(model).items()
    }


def keep(parts: Parts, holders: Holders, rank: int, device: torch.device) -> None:
    """Release the tensors that ``rank`` does not hold. Those it holds go to ``device`` and stay the same
    objects."""
    for name, module in parts.model.named_modules():
        for table in (parameters_of(module), buffers_of(module)):
            for key, tensor in table.items():
                if tensor is None:
                    continue
                if rank in holders[f"{name}.{key}" if name else key]:
                    tensor.data = tensor.data.to(device)
                else:
                    # Emptied, too: a record of the forward may hold it until the next garbage collection.
                    tensor.data = tensor.data.new_empty(0)
                    table[key] = None
    kept = set(parts.model.parameters())
    for group in parts.optimizer.param_groups:
        group["params"] = [parameter for parameter in group["params"] if parameter in kept]
    for parameter in [parameter for parameter in parts.optimizer.state if parameter not in kept]:
        del parts.optimizer.state[parameter]


def tied_over(model: nn.Module, holders: Holders) -> dict[tuple[int, ...], list[nn.Parameter]]:
    """The trained parameters that several ranks hold, by these ranks, in the model's order."""
    tied: dict[tuple[int, ...], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and len(holders[name]) > 1:
            tied.setdefault(holders[name], []).append(parameter)
    return tied


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    return {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }
