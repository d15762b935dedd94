"""What a model weighs: the bytes that a rank holds of it at least while it is trained.

Parameters, a gradient for each that is trained, and the optimizer's slots: for Adam in float32 the 16 bytes a
parameter of the ZeRO paper (Rajbhandari et al. 2020, section 3.1, less the copy that mixed precision adds).
Activations come on top: they are unknown before a batch is trained. So this is a lower bound: it shows that a
model cannot fit, never that it fits.
"""

from __future__ import annotations

import copy
from collections import defaultdict

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from cerebro_elastic.errors import TaskError
from cerebro_elastic.training.parallel.base import Parallelism, Parts

_PROBE = 8


def check_room(parts: Parts, parallelism: Parallelism, ranks: int, device: torch.device, room: int) -> None:
    """Raise ``TaskError`` if a rank has not ``room`` enough, in bytes, for its part of ``parts``."""
    spread = parallelism.spread(ranks, device)
    parameters, gradients, slots = weight(parts)
    needs = parameters * spread.parameters + gradients * spread.gradients + slots * spread.slots
    if needs > room:
        raise TaskError(
            f"a rank holds at least {needs / 1e6:.3g} MB of parameters, gradients and optimizer state, and "
            f"has {room / 1e6:.3g} MB for them: take more ranks, or a parallelism that shards more of it"
        )


def weight(parts: Parts) -> tuple[int, int, int]:
    """Bytes of all parameters, of their gradients, and of the optimizer's slots."""
    everything = [parameter for parameter in parts.model.parameters() if not is_lazy(parameter)]
    trained = sum(p.nbytes for p in everything if p.requires_grad)
    return sum(p.nbytes for p in everything), trained, round(trained * _slots(parts.optimizer))


def _slots(optimizer: Optimizer) -> float:
    """Bytes of slots for each byte of a parameter, by a step on a parameter of a few elements; 0 if the
    optimizer does not take such a step."""
    probe = nn.Parameter(torch.zeros(_PROBE))
    probe.grad = torch.zeros(_PROBE)
    twin = copy.copy(optimizer)
    twin.state = defaultdict(dict)
    twin.param_groups = [{**optimizer.param_groups[0], "params": [probe]}]
    try:
        type(optimizer).step(twin)
    except Exception:  # whatever an optimizer of the user's needs
        return 0.0
    slots = [value for value in twin.state[probe].values() if isinstance(value, torch.Tensor)]
    return sum(slot.nbytes for slot in slots if slot.numel() == _PROBE) / probe.nbytes
