"""Which parts of a plain PyTorch config depend on its number of epochs?

They are made twice, for either number, and compared. What cannot be compared counts as different.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from cerebro_elastic.parallel.base import Parts
from cerebro_elastic.training.value_differences import is_plain, value_differences


def differences(short: Parts, long: Parts) -> Iterator[str]:
    """What of model, optimizer and scheduler is not the same, in words."""
    owner = type(long.scheduler).__name__
    yield from value_differences(owner, _values(short.scheduler), _values(long.scheduler), _same)
    for at, (before, after) in enumerate(
        zip(short.optimizer.param_groups, long.optimizer.param_groups, strict=True)
    ):
        yield from value_differences(f"parameter group {at}", _plain(before), _plain(after), _same)
    yield from value_differences("model", _model(short.model), _model(long.model), _same)


def _values(scheduler: Any) -> dict[str, Any]:
    """A scheduler's attributes, and functions that it may compute with."""
    hidden = ("optimizer", "last_epoch")
    attributes = vars(scheduler) if scheduler is not None else {}
    return {name: v for name, v in attributes.items() if name not in hidden and not name.startswith("_")}


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != "params"}


def _model(model: nn.Module) -> dict[str, Any]:
    values: dict[str, Any] = dict(model.state_dict())
    for path, module in model.named_modules():
        own = ((name, value) for name, value in vars(module).items() if not name.startswith("_"))
        values |= {f"{path}.{name}".lstrip("."): value for name, value in own if is_plain(value)}
    return values


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.shape == other.shape and bool(torch.equal(one, other))
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if is_plain(one) or is_plain(other):
        return repr(one) == repr(other)
    return one is other and not getattr(one, "__closure__", None)
