"""A state's tensors become a model's own without a copy: so loading is no pass over the memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from cerebro_elastic.errors import CheckpointError
from cerebro_elastic.system.torch_internals import buffers_of
from cerebro_elastic.training.parallel.construct import keeps_tensors


def hand_over(model: nn.Module, state: Mapping[str, Any]) -> None:
    """As ``model.load_state_dict(state)``, but ``model`` then trains in the very tensors of ``state``, where
    they lie in memory as its own do. Parameters stay the same objects, so that an optimizer keeps them."""
    given = dict(state)
    # A tensor that a module keeps beside its state may be a view of a parameter.
    live = {} if keeps_tensors(model) else model.state_dict(keep_vars=True)
    for name, own in live.items():
        value = given.get(name)
        if isinstance(own, Tensor) and isinstance(value, Tensor) and not is_lazy(own) and _alike(own, value):
            own.data = value
            given[name] = own
    load_values(model, given)


def load_values(model: nn.Module, state: Mapping[str, Any], *, strict: bool = True) -> None:
    """``model.load_state_dict``, for sparse tensors, too; what is lazy in ``model`` need not be in ``state``.
    Raises ``CheckpointError`` if it does not fit."""
    for name, value in state.items():
        if isinstance(value, Tensor) and value.layout is not torch.strided:
            _put_sparse(model, name, value)
    lazy = {name for name, value in _tensors(model) if is_lazy(value)} - state.keys()
    try:
        keys = model.load_state_dict(state, strict=strict and not lazy)
        if strict and lazy and (wrong := {*keys.missing_keys, *keys.unexpected_keys} - lazy):
            raise RuntimeError(f"missing or unexpected: {', '.join(sorted(wrong))}")
    except RuntimeError as exc:
        reason = " ".join(str(exc).split())
        raise CheckpointError(
            f"the checkpoint does not fit {type(model).__name__}: {reason}; build the same model in every "
            "unit, from hyper-parameters alone"
        ) from exc


def _put_sparse(model: nn.Module, name: str, value: Tensor) -> None:
    """As it is: into a sparse tensor with other elements none can be copied."""
    path, _, leaf = name.rpartition(".")
    owner = model.get_submodule(path)
    own = buffers_of(owner).get(leaf)
    if own is not None:
        buffers_of(owner)[leaf] = value.to(own.device, copy=True)


def _tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def _alike(own: Tensor, value: Tensor) -> bool:
    """Whether ``value`` can take the place of ``own``: in the same order, and with all of its memory."""
    return own.layout is value.layout is torch.strided and (
        (own.shape, own.dtype, own.device, own.stride())
        == (value.shape, value.dtype, value.device, value.stride())
        and type(value) is Tensor
        and not value.requires_grad
        and value.untyped_storage().nbytes() == value.numel() * value.element_size()
    )
