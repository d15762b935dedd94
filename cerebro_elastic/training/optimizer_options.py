"""What a config sets anew in a state that another has left: the options of its optimizers.

A state bears the learning rates of the config that made it, as far as a schedule has moved them, and what its
optimizer was built with (``constructor_options``). What a child's optimizer is built with differently takes
its place.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from torch import Tensor
from torch.optim import Optimizer

from cerebro_elastic.training._torch_internals import MOVED_RATES, with_inner_schedulers

OptimizerOptions: TypeAlias = Sequence[Mapping[str, Any]]
"""The parameter groups of an optimizer without their parameters."""

_KEPT = ("params", "param_names")


def constructor_options(optimizer: Optimizer) -> OptimizerOptions:
    """What the optimizer is built with, if it has done nothing yet."""
    return [
        {key: copy.deepcopy(value) for key, value in group.items() if key not in _KEPT}
        for group in optimizer.param_groups
    ]


def override_options(
    optimizer: Optimizer, schedulers: Sequence[Any], theirs: OptimizerOptions, own: OptimizerOptions
) -> None:
    """Give an optimizer that has loaded another config's state (and the schedulers that move its rates) its
    ``own`` options where they are not ``theirs``. A rate that was moved is moved as far from the new one.
    Groups that were added since are left as they are."""
    factors = [_set(*each) for each in zip(optimizer.param_groups, theirs, own, strict=False)]
    for scheduler in with_inner_schedulers(schedulers):
        for name in MOVED_RATES:
            rates = getattr(scheduler, name, None)
            if rates is not None:
                scaled = [rate * factor for rate, factor in zip(rates, factors, strict=False)]
                setattr(scheduler, name, [*scaled, *rates[len(factors) :]])


def _set(group: dict[str, Any], theirs: Mapping[str, Any], own: Mapping[str, Any]) -> float:
    """By what the group's rates are multiplied."""
    factor = 1.0
    if "lr" in own and float(theirs["lr"]) != float(own["lr"]):
        factor = float(own["lr"]) / float(theirs["lr"]) if float(theirs["lr"]) else 0.0
        moved = float(group["lr"]) * factor if factor else float(own["lr"])
        group["lr"] = group["lr"].fill_(moved) if isinstance(group["lr"], Tensor) else moved
    changed = {key: value for key, value in own.items() if bool(value != theirs.get(key))}
    changed.pop("lr", None)
    group.update(changed)
    return factor
