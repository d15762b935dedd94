"""DeepSpeed's ZeRO: stage 1 shards the optimizer's state, 2 the gradients too, 3 the parameters as well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from cerebro_deepspeed import library
from cerebro_deepspeed.section import settings
from cerebro_deepspeed.state import EngineState
from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.parallelism import (
    Buffers,
    DataParallel,
    Make,
    Parts,
    Spread,
    construct,
    ranks,
    taken,
    together,
)
from cerebro_elastic.extending.state import check_groups, to_names

_SHAPED = ("Muon", "Adafactor", "LBFGS")
"""Optimizers of torch that depend on a parameter's shape, or on all parameters at once."""


class Zero(DataParallel):
    """``stage`` 1, 2 or 3; ``config`` is DeepSpeed's JSON or its file's path (``section.settings``).

    The optimizer is the task's own one of ``torch.optim``, on flat shards of each parameter group. So it has
    to work element by element, as AdamW and SGD do.
    """

    accumulates = False

    def __init__(self, *, stage: int | None = None, config: Mapping[str, Any] | str | None = None) -> None:
        self._settings = settings(stage, config)
        self._config = config
        self._groups: list[dict[str, Any]] = []
        self._buffers = Buffers()
        self._engine: Any = None
        self._state: EngineState
        self._trained: Mapping[str, nn.Parameter] = {}
        self._reached: set[str] = set()

    def prepare(self, device: torch.device) -> None:
        """Import deepspeed."""
        library.deepspeed(device)

    def refusal(self, parts: Parts, ranks: int) -> str | None:  # noqa: ARG002
        """Whether ZeRO can take the parameters and the optimizer; on one rank it is of use with offload."""
        if not library.installed():
            return library.MISSING
        for number, group in enumerate(parts.optimizer.param_groups):
            if not any(parameter.requires_grad for parameter in group["params"]):
                return f"deepspeed takes no parameter group that is wholly frozen, such as group {number}"
        named = dict(parts.model.named_parameters())
        owned = {parameter for group in parts.optimizer.param_groups for parameter in group["params"]}
        if stray := [name for name, value in named.items() if value.requires_grad and value not in owned]:
            return (
                f"deepspeed takes no parameters that no optimizer trains: {_some(stray)}; freeze them, or "
                "give them to the optimizer"
            )
        if odd := [name for name, value in named.items() if value.dtype != torch.float32 or not value.dim()]:
            return (
                f"deepspeed takes parameters in float32 with a dimension, not {_some(odd)}: make them so, or "
                "take fsdp, which supports others"
            )
        if (kind := type(parts.optimizer).__name__) in _SHAPED:
            return f"deepspeed cuts parameters into flat shards, and {kind} needs their shape"
        # Only settings written by the user need a check: the import of DeepSpeed takes seconds.
        return library.complaint(self._settings) if self._config else None

    def spread(self, ranks: int, device: torch.device) -> Spread:
        """By stage; offloaded state is not on the GPU."""
        zero = self._settings["zero_optimization"]

        def share(stage: int, offload: str) -> float:
            offloaded = zero.get(offload, {}).get("device", "none") != "none"
            if offloaded and device.type != "cpu":
                return 0.0
            return 1 / ranks if zero["stage"] >= stage else 1.0

        return Spread(share(3, "offload_param"), share(2, "offload_optimizer"), share(1, "offload_optimizer"))

    def build(self, make: Make, device: torch.device, *, loaded: bool = False) -> Parts:
        """The task calls DeepSpeed's engine as its model, and keeps its own optimizer, now on flat shards."""
        package = library.deepspeed(device)
        parts = construct(make, loaded=loaded)
        self._groups = to_names(parts.optimizer, parts.model)["param_groups"]
        parts.optimizer.state.clear()
        together()  # DeepSpeed makes its own groups
        self._engine = library.engine(
            package,
            device,
            model=parts.model,
            optimizer=parts.optimizer,
            config={**self._settings, "train_batch_size": ranks()[1]},
        )
        self._state = EngineState(self._engine, parts.optimizer)
        self._trained = {name: p for name, p in self._engine.module.named_parameters() if p.requires_grad}
        for name, parameter in self._trained.items():
            parameter.register_hook(partial(_note, self._reached, name))  # type: ignore[no-untyped-call]
        return Parts(self._engine, parts.optimizer, parts.scheduler)

    def load(
        self, parts: Parts, model: Mapping[str, Any] | None, optimizer: Mapping[str, Any] | None
    ) -> None:
        """Every rank keeps its shard of each tensor of the state."""
        live = self._named()

        def put(path: tuple[Any, ...], full: Tensor) -> None:
            if isinstance(tensor := live[path[0]], nn.Parameter):
                self._state.set_weight(tensor, full)
            else:
                tensor.copy_(full)

        taken(model, put, self._engine.device)
        named = taken(optimizer, lambda _, full: full, self._engine.device)
        check_groups([group["params"] for group in self._groups], named["param_groups"])
        for group, saved in zip(parts.optimizer.param_groups, named["param_groups"], strict=True):
            group.update({key: value for key, value in saved.items() if key != "params"})
        self._state.set_slots(named["state"])

    def backward(self, parts: Parts, loss: Tensor) -> None:  # noqa: ARG002
        """The engine's backward pass; the engine keeps the gradients inside."""
        self._engine.backward(loss)

    def update(self, parts: Parts, clip: float | None) -> None:
        """The engine's step. The engine silently skips a step whose gradient is not finite; with other
        parallelisms the weights become NaN, so this does the same here. The engine would also change
        parameters without a gradient, so these are refused."""
        unreached = [name for name in self._trained if name not in self._reached]
        if len(unreached) == len(self._trained):
            return  # without a backward pass no step is taken
        self._reached.clear()
        if unreached:
            raise TaskError(
                f"{_some(unreached)} have no part in the loss of a batch, and deepspeed would change them "
                "all the same, by momentum and weight decay: freeze them, or take fsdp, or ddp with "
                "find_unused_parameters"
            )
        self._engine.optimizer.clip_grad = clip or 0.0
        self._engine.step()
        if self._engine.optimizer.overflow:
            self._state.spoil()
        self._buffers.agree(parts.model)

    def export(self, parts: Parts) -> tuple[dict[str, Any], dict[str, Any]]:
        """The neutral state, gathered; empty on all ranks but the first."""
        first = ranks()[0] == 0
        weights: dict[int, Tensor | None] = {}
        model = {}
        for name, value in self._named().items():
            if isinstance(value, nn.Parameter):
                if id(value) not in weights:  # tied ones stay tied
                    full = self._state.weight(value)
                    weights[id(value)] = full.cpu() if first else None
                model[name] = weights[id(value)]
            else:
                model[name] = value.cpu() if isinstance(value, Tensor) else value
        slots = {name: slots for name, slots in self._state.slots() if first}
        return (model, {"state": slots, "param_groups": self._live_groups(parts)}) if first else ({}, {})

    def _live_groups(self, parts: Parts) -> list[dict[str, Any]]:
        """The task's parameter groups, with their present values."""
        return [
            {key: named["params"] if key == "params" else group[key] for key in named}
            for named, group in zip(self._groups, parts.optimizer.param_groups, strict=True)
        ]

    def _named(self) -> dict[str, Any]:
        state: dict[str, Any] = self._engine.module.state_dict(keep_vars=True)
        return state

    def close(self) -> None:
        """Take the engine apart, and have DeepSpeed forget it and its group."""
        if self._engine is not None:
            library.destroy(self._engine)
            self._engine = None


def _note(reached: set[str], name: str, _gradient: Tensor) -> None:
    reached.add(name)


def _some(names: Sequence[str]) -> str:
    return ", ".join([*names[:3], *(["..."] if len(names) > 3 else [])])
