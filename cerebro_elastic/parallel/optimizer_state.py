"""Optimizer state by parameter name.

``torch.optim.Optimizer.state_dict`` numbers parameters in the order in which the optimizer got
them. Names survive what numbers do not: another order, another parallelism, a look by a person.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from cerebro_elastic.errors import CheckpointError, TaskError

NamedState = Mapping[str, Any]
"""``{"state": {name: {slot: value}}, "param_groups": [{"params": [name, ...], "lr": ..., ...}]}``"""

_OWN = ("params", "param_names")
"""What a group says of its parameters: always the live optimizer's, never the saved one's."""


def to_names(optimizer: Optimizer, model: nn.Module) -> dict[str, Any]:
    """``optimizer.state_dict()`` with the names of ``model``'s parameters in place of numbers.

    A tied parameter bears the first of its names. Tensors are the live ones, not copies. Raises
    ``TaskError`` if the optimizer has a parameter that is not the model's.
    """
    packed = optimizer.state_dict()
    groups = _group_names(optimizer, model)
    name_of = {
        number: name
        for group, names in zip(packed["param_groups"], groups, strict=True)
        for number, name in zip(group["params"], names, strict=True)
    }
    return {
        "state": {name_of[number]: dict(slots) for number, slots in packed["state"].items()},
        "param_groups": [
            {**{key: value for key, value in group.items() if key not in _OWN}, "params": names}
            for group, names in zip(packed["param_groups"], groups, strict=True)
        ],
    }


def from_names(named: NamedState, optimizer: Optimizer, model: nn.Module) -> dict[str, Any]:
    """The inverse: a state for ``optimizer.load_state_dict``, by this optimizer's own numbers.

    The tensors are those of ``named``, not copies: an optimizer goes on writing into what it loads. Raises
    ``CheckpointError`` if the groups are not the same, parameter by parameter.
    """
    live, saved = _group_names(optimizer, model), named["param_groups"]
    check_groups(live, saved)
    packed = optimizer.state_dict()
    number_of = {
        name: number
        for group, names in zip(packed["param_groups"], live, strict=True)
        for number, name in zip(group["params"], names, strict=True)
    }
    return {
        "state": {number_of[name]: dict(slots) for name, slots in named["state"].items()},
        "param_groups": [
            {**old, **{key: group[key] for key in _OWN if key in group}}
            for old, group in zip(saved, packed["param_groups"], strict=True)
        ],
    }


def take(optimizer: Optimizer, model: nn.Module, named: NamedState) -> None:
    """Have ``optimizer`` go on in the tensors of ``named``. Each slot keeps its dtype, which
    ``load_state_dict`` makes the parameter's: bits would be lost of what is kept in more precision."""
    optimizer.load_state_dict(from_names(named, optimizer, model))
    parameters = dict(model.named_parameters())
    for name, slots in named["state"].items():
        loaded = optimizer.state[parameters[name]]
        for slot, value in slots.items():
            if isinstance(value, Tensor) and loaded[slot].dtype != value.dtype:
                loaded[slot] = value.to(loaded[slot].device)


def check_groups(live: Sequence[Sequence[str]], saved: Sequence[Mapping[str, Any]]) -> None:
    """Raise ``CheckpointError`` unless the names of ``live``'s groups are those of the ``saved`` ones."""
    if [sorted(names) for names in live] != [sorted(group["params"]) for group in saved]:
        raise CheckpointError(
            f"the checkpoint's optimizer has the parameter groups {_story(g['params'] for g in saved)}, this "
            f"one has {_story(live)}: build the same optimizer in every unit, from hyper-parameters alone"
        )


def _group_names(optimizer: Optimizer, model: nn.Module) -> list[list[str]]:
    """The names of the parameters of each group, in the optimizer's order."""
    name_of = {parameter: name for name, parameter in model.named_parameters()}
    groups = [[name_of.get(parameter) for parameter in group["params"]] for group in optimizer.param_groups]
    if any(name is None for names in groups for name in names):
        raise TaskError(
            f"{type(optimizer).__name__} optimizes a parameter that is not the model's, so it has no name: "
            "make it a parameter of the model (self.x = nn.Parameter(...))"
        )
    return [[name for name in names if name is not None] for names in groups]


def _story(groups: Any) -> str:
    return "; ".join(f"[{', '.join(names)}]" for names in groups)
