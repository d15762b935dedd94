"""Optimizer state by parameter name, and the options that a child config sets itself in it.

``torch.optim.Optimizer.state_dict`` numbers parameters in the order in which the optimizer got them. Names,
unlike numbers, survive another order and another parallelism, and people can read them.

The state is read from the optimizer and put into it as it is, value by value. Its ``load_state_dict`` would
change it: that makes a slot's dtype its parameter's, and of a string or an array something else. If its class
overrides ``state_dict`` or ``load_state_dict``, that is called as well.

An inherited state holds the learning rates of the config that made it, as far as a schedule has moved them,
and the options with which its optimizer was built. Where the child's optimizer is built with others, these
take their place.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from types import FunctionType
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from cerebro_elastic.errors import CheckpointError, TaskError
from cerebro_elastic.hop._torch_internals import (
    MOVED_RATES,
    OPTIMIZER_STATE_HOOKS,
    with_inner_schedulers,
)

NamedState = Mapping[str, Any]
"""``{"state": {name: {slot: value}}, "param_groups": [{"params": [name, ...], "lr": ..., ...}]}``

Only where an optimizer has them: ``"others"``, the pairs of its state whose keys are no parameters;
``"inner"``, the states of optimizers that it has as attributes, by name; ``"own"``, the result of its own
``state_dict``. """

_OWN = ("params", "param_names")
"""A group's entries on its parameters."""

_PARAMETER = "cerebro.parameter"
"""In an optimizer's own state dict: the key, with a name, in place of a parameter's id."""


def to_names(optimizer: Optimizer, model: nn.Module) -> dict[str, Any]:
    """The optimizer's state with the names of ``model``'s parameters.

    A tied parameter bears the first of its names. Tensors are the live ones, not copies. Raises
    ``TaskError`` if the optimizer has a parameter that is not the model's.
    """
    groups, name_of = group_names(optimizer, model), _names(model)
    state = _state(optimizer)
    named: dict[str, Any] = {
        "state": {
            name_of[key]: _slots(value)
            for key, value in state.items()
            if isinstance(key, Tensor) and key in name_of
        },
        "param_groups": [
            {**{key: value for key, value in group.items() if not _is_live(key, value)}, "params": names}
            for group, names in zip(optimizer.param_groups, groups, strict=True)
        ],
    }
    if others := [(key, value) for key, value in state.items() if not isinstance(key, Tensor)]:
        named["others"] = others
    if inner := {name: to_names(part, model) for name, part in inner_optimizers(optimizer)}:
        named["inner"] = inner
    if _has_own_state(optimizer):
        ids = {id(parameter): (_PARAMETER, name) for parameter, name in name_of.items()}
        named["own"] = _renamed(optimizer.state_dict(), ids)
    return named


def _is_live(key: str, value: Any) -> bool:
    """Whether an option of a group is always the live optimizer's: code, such as heavyball's class of it."""
    return key in _OWN or isinstance(value, type | FunctionType)


def take(optimizer: Optimizer, model: nn.Module, named: NamedState) -> None:
    """Have ``optimizer`` continue in the tensors of ``named``, which are not copied.

    Raises ``CheckpointError`` if the groups are not the same, parameter by parameter.
    """
    check_groups(group_names(optimizer, model), named["param_groups"])
    parameters = dict(model.named_parameters(remove_duplicate=False))
    if "own" in named:
        ids = {(_PARAMETER, name): id(parameter) for name, parameter in parameters.items()}
        optimizer.load_state_dict(_renamed(named["own"], ids))
    inner = dict(inner_optimizers(optimizer))
    for name, part in named.get("inner", {}).items():
        take(inner[name], model, part)
    for group, saved in zip(optimizer.param_groups, named["param_groups"], strict=True):
        for key in [key for key, value in group.items() if key not in saved and not _is_live(key, value)]:
            del group[key]
        group.update((key, value) for key, value in saved.items() if key not in _OWN)
    slots = {parameters[name]: saved for name, saved in named["state"].items()}
    fused = {
        p: bool(g.get("fused") or g.get("capturable")) for g in optimizer.param_groups for p in g["params"]
    }
    state = _state(optimizer)
    state.clear()
    for parameter, saved in slots.items():
        state[parameter] = _placed(saved, parameter.device, fused.get(parameter, False))
    state.update(named.get("others", ()))


def regroup(optimizer: Optimizer, model: nn.Module, named: NamedState) -> None:
    """Give ``optimizer`` the groups of parameters of ``named``: they were changed during training."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    groups, saved = optimizer.param_groups, named["param_groups"]
    del groups[len(saved) :]
    groups.extend({"params": []} for _ in saved[len(groups) :])
    for group, wanted in zip(groups, saved, strict=True):
        group["params"] = [parameters[name] for name in wanted["params"]]
        if "param_names" in group:
            group["param_names"] = list(wanted["params"])
    for name, part in inner_optimizers(optimizer):
        if part.param_groups is not groups:
            regroup(part, model, named["inner"][name])


def check_groups(live: Sequence[Sequence[str]], saved: Sequence[Mapping[str, Any]]) -> None:
    """Raise ``CheckpointError`` unless the names of ``live``'s groups are those of the ``saved`` ones."""
    if [sorted(names) for names in live] != [sorted(group["params"]) for group in saved]:
        raise CheckpointError(
            f"the checkpoint's optimizer has the parameter groups {_story(g['params'] for g in saved)}, this "
            f"one has {_story(live)}: build the same optimizer in every unit, from hyper-parameters alone"
        )


def group_names(optimizer: Optimizer, model: nn.Module) -> list[list[str]]:
    """The names of the parameters of each group, in the optimizer's order. Raises ``TaskError`` for a
    parameter that is not ``model``'s."""
    name_of = _names(model)
    groups = [[name_of.get(parameter) for parameter in group["params"]] for group in optimizer.param_groups]
    if any(name is None for names in groups for name in names):
        raise TaskError(
            f"{type(optimizer).__name__} optimizes a parameter that is not the model's, so it has no name: "
            "make it a parameter of the model (self.x = nn.Parameter(...)), and tell the optimizer of each "
            "that takes the place of another during training"
        )
    return [[name for name in names if name is not None] for names in groups]


def _names(model: nn.Module) -> dict[Tensor, str]:
    return {parameter: name for name, parameter in model.named_parameters()}


def _state(optimizer: Optimizer) -> MutableMapping[Any, Any]:
    state: MutableMapping[Any, Any] = optimizer.state
    return state


def _slots(value: Any) -> Any:
    """A copy that further steps do not change the keys of."""
    return dict(value) if type(value) is dict else value


def inner_optimizers(optimizer: Optimizer) -> Iterator[tuple[str, Optimizer]]:
    """The optimizers that it wraps, by the names of its attributes."""
    for name, value in vars(optimizer).items():
        if isinstance(value, Optimizer):
            yield name, value
        elif isinstance(value, list | tuple | dict):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            yield from ((f"{name}.{key}", item) for key, item in items if isinstance(item, Optimizer))


def _has_own_state(optimizer: Optimizer) -> bool:
    kind = type(optimizer)
    return (
        kind.state_dict is not Optimizer.state_dict
        or kind.load_state_dict is not Optimizer.load_state_dict
        or any(getattr(optimizer, name, None) for name in OPTIMIZER_STATE_HOOKS)
    )


def _renamed(value: Any, keys: Mapping[Any, Any]) -> Any:
    """``value`` with the ``keys`` of its dicts exchanged."""
    if isinstance(value, dict):
        return {_key(key, keys): _renamed(item, keys) for key, item in value.items()}
    return value


def _key(key: Any, keys: Mapping[Any, Any]) -> Any:
    return keys.get(key, key) if isinstance(key, int | tuple) else key


def _placed(value: Any, device: torch.device, fused: bool, key: object = None) -> Any:
    """As torch places a parameter's slots: with the parameter, but for the count of steps."""
    if isinstance(value, Tensor):
        return value if key == "step" and not fused else value.to(device)
    if device.type == "cpu":
        return value
    if type(value) in (dict, list, tuple):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        placed = {key: _placed(item, device, fused, key) for key, item in items}
        return placed if isinstance(value, dict) else type(value)(placed.values())
    return value


def _story(groups: Any) -> str:
    return "; ".join(f"[{', '.join(names)}]" for names in groups)


OptimizerOptions: TypeAlias = Sequence[Mapping[str, Any]]
"""The parameter groups of an optimizer without their parameters."""


def constructor_options(optimizer: Optimizer) -> OptimizerOptions:
    """The initial options of an optimizer that has not made a step yet."""
    return [
        {key: copy.deepcopy(value) for key, value in group.items() if key not in _OWN}
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
        theirs: The initial options of the other config's optimizer.
        own: The initial options of this one.
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
