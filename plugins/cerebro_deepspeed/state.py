"""A ZeRO engine's parameters and optimizer slots, read and written as full tensors.

The optimizer has one flat tensor for many parameters (``_Flat``), of which each rank holds a part. A whole
parameter or slot is read from it by DeepSpeed's own functions, and written too, except in stage 3: there they
fail on the last rank if the ranks do not divide the parameter, so this module cuts the part itself.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from cerebro_deepspeed._deepspeed_internals import (
    flat_groups_of,
    link_optimizer_state,
    partition_of,
    shape_of,
)
from cerebro_elastic.extending.errors import CheckpointError
from cerebro_elastic.extending.parallelism import ranks


@dataclass(frozen=True)
class _Flat:
    """The flat tensor that the optimizer has in place of ``parameters``."""

    tensor: Tensor
    parameters: list[nn.Parameter]


class EngineState:
    """The state of ``engine``, whose optimizer wraps ``optimizer``."""

    def __init__(self, engine: Any, optimizer: Optimizer) -> None:
        self._zero = engine.optimizer
        self._inner = optimizer
        self._sharded = engine.zero_optimization_stage() == 3
        self._names = {parameter: name for name, parameter in engine.module.named_parameters()}
        self._fragments = importlib.import_module("deepspeed.utils")
        self._partition = importlib.import_module("deepspeed.runtime.zero")

    def weight(self, parameter: nn.Parameter) -> Tensor:
        """All of a parameter, copied; every rank calls it."""
        if parameter.requires_grad:
            full: Tensor = self._fragments.safe_get_full_fp32_param(parameter)
            return full.clone()
        if not self._sharded:
            return parameter.detach().clone()
        with self._partition.GatheredParameters([parameter]):
            return parameter.detach().clone()

    @torch.no_grad()
    def set_weight(self, parameter: nn.Parameter, full: Tensor) -> None:
        """Write this rank's part of a parameter, and of the optimizer's copy of it."""
        if not self._sharded:
            parameter.copy_(full)
            if parameter.requires_grad:
                self._fragments.safe_set_full_fp32_param(parameter, full.to(parameter.device))
            return
        part = _part(parameter, full)
        partition_of(parameter).copy_(part)
        if parameter.numel() == full.numel():  # a small one: it stays on every rank
            parameter.copy_(full)
        if parameter.requires_grad:
            self._fragments.safe_set_local_fp32_param(parameter, part)

    def spoil(self) -> None:
        """Write NaN into all trained tensors."""
        for parameter in self._names:
            if parameter.requires_grad:
                self.set_weight(parameter, torch.full(shape_of(parameter), torch.nan))

    def slots(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each parameter's slots by name, full; every rank iterates over them."""
        self._link()
        for flat in self._flats():
            slots = self._inner.state.get(flat.tensor, {})
            for parameter in flat.parameters if slots else ():
                yield (
                    self._names[parameter],
                    {
                        key: self._fragments.safe_get_full_optimizer_state(parameter, key).clone()
                        if _is_flat(value, flat.tensor)
                        else value.clone()
                        if isinstance(value, Tensor)
                        else value
                        for key, value in slots.items()
                    },
                )

    def set_slots(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        """Write this rank's part of the slots of parameters by name.

        Raises ``CheckpointError`` if parameters of one flat tensor differ in a value that the tensor has
        once, such as the step count.
        """
        if not state:
            return
        for flat in self._flats():
            known = [name for name in map(self._names.__getitem__, flat.parameters) if name in state]
            if known:
                self._inner.state[flat.tensor] = _flat_slots(flat, self._names, state)
        self._link()
        for flat in self._flats():
            for parameter in flat.parameters:
                for key, value in state.get(self._names[parameter], {}).items():
                    if isinstance(value, Tensor) and value.shape == shape_of(parameter):
                        self._set_slot(parameter, key, value)

    def _link(self) -> None:
        if not self._sharded:
            link_optimizer_state(self._zero)

    def _set_slot(self, parameter: nn.Parameter, key: str, full: Tensor) -> None:
        if self._sharded:
            self._fragments.safe_set_local_optimizer_state(parameter, _part(parameter, full), key)
        else:
            self._fragments.safe_set_full_optimizer_state(parameter, full, key)

    def _flats(self) -> list[_Flat]:
        return [_Flat(*group) for group in flat_groups_of(self._zero, sharded=self._sharded)]


def _flat_slots(
    flat: _Flat, names: Mapping[nn.Parameter, str], state: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Slots of zeros like ``flat``; values that all its parameters share are kept."""
    built: dict[str, Any] = {}
    first = ""
    for parameter in flat.parameters:
        name = names[parameter]
        for key, value in state.get(name, {}).items():
            if isinstance(value, Tensor) and value.shape == shape_of(parameter):
                built.setdefault(key, torch.zeros_like(flat.tensor))
            elif key not in built:
                built[key], first = value.clone() if isinstance(value, Tensor) else value, name
            elif bool(built[key] != value):
                raise CheckpointError(
                    f"deepspeed keeps one {key} for all parameters of a group, but that of {first} is "
                    f"{built[key]} and that of {name} is {value}: train this config with another parallelism"
                )
    return built


def _is_flat(value: Any, flat: Tensor) -> bool:
    return isinstance(value, Tensor) and value.shape == flat.shape


def _part(parameter: nn.Parameter, full: Tensor) -> Tensor:
    """This rank's part of ``full`` under ZeRO-3, filled up with zeros if it is the last."""
    partition = partition_of(parameter)
    length = partition.numel()
    part = full.new_zeros(length)
    own = full.reshape(-1)[ranks()[0] * length :][:length]
    part[: own.numel()] = own
    return part.to(partition.device)
