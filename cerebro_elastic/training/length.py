"""Which parts of a plain PyTorch config depend on its number of epochs?

They are made twice, for either number, and compared. What cannot be compared counts as different.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from cerebro_elastic.parallel.base import Parts


def differences(short: Parts, long: Parts) -> Iterator[str]:
    """What of model, optimizer and scheduler is not the same, in words."""
    yield from _of(type(long.scheduler).__name__, _values(short.scheduler), _values(long.scheduler))
    for at, (before, after) in enumerate(
        zip(short.optimizer.param_groups, long.optimizer.param_groups, strict=True)
    ):
        yield from _of(f"parameter group {at}", _plain(before), _plain(after))
    yield from _of("model", _model(short.model), _model(long.model))


def _of(owner: str, short: Mapping[str, Any], long: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted({*short, *long}):
        before, after = short.get(name), long.get(name)
        if name not in short or name not in long or not _same(before, after):
            values = (
                f" is {before!r}, it would be {after!r}" if _is_plain(before) and _is_plain(after) else ""
            )
            yield f"{owner}.{name}{values or ' would be another'}"


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
        values |= {f"{path}.{name}".lstrip("."): value for name, value in own if _is_plain(value)}
    return values


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.shape == other.shape and bool(torch.equal(one, other))
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if _is_plain(one) or _is_plain(other):
        return repr(one) == repr(other)
    return one is other and not getattr(one, "__closure__", None)


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, Mapping):
        return all(map(_is_plain, value.values()))
    return value is None or isinstance(value, bool | int | float | str)
