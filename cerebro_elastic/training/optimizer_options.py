"""The options of optimizers that a child config sets itself in the state that it inherits.

A state holds the learning rates of the config that made it, as far as a schedule has moved them, and the
options with which its optimizer was built. Where the child's optimizer is built with others, these take their
place.
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
    """The options with which an optimizer was built that has done nothing yet."""
    return [
        {key: copy.deepcopy(value) for key, value in group.items() if key not in _KEPT}
        for group in optimizer.param_groups
    ]


def override_options(
    optimizer: Optimizer, schedulers: Sequence[Any], theirs: OptimizerOptions, own: OptimizerOptions
) -> None:
    """Set a config's own options in an optimizer that has loaded another config's state.

    A learning rate that was moved is moved as far from the new one. Groups that were added since stay as they
    are.

    Args:
        optimizer: The optimizer.
        schedulers: The schedulers that move its rates.
        theirs: The options with which the other config's optimizer was built.
        own: The options with which this one was built.
    """
    factors = [_set(*options) for options in zip(optimizer.param_groups, theirs, own, strict=False)]
    for scheduler in with_inner_schedulers(schedulers):
        for name in MOVED_RATES:
            rates = getattr(scheduler, name, None)
            if rates is not None:
                scaled = [rate * factor for rate, factor in zip(rates, factors, strict=False)]
                setattr(scheduler, name, [*scaled, *rates[len(factors) :]])


def _set(group: dict[str, Any], theirs: Mapping[str, Any], own: Mapping[str, Any]) -> float:
    """Set a group's own options; returns the factor by which its rates have changed."""
    factor = 1.0
    if "lr" in own and float(theirs["lr"]) != float(own["lr"]):
        factor = float(own["lr"]) / float(theirs["lr"]) if float(theirs["lr"]) else 0.0
        moved = float(group["lr"]) * factor if factor else float(own["lr"])
        group["lr"] = group["lr"].fill_(moved) if isinstance(group["lr"], Tensor) else moved
    changed = {key: value for key, value in own.items() if bool(value != theirs.get(key))}
    changed.pop("lr", None)
    group.update(changed)
    return factor
