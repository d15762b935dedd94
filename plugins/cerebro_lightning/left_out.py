"""The weights that a module's own checkpoint leaves out or alters, as ``state_dict`` and
``on_save_checkpoint`` may: an ordinary fit goes on with them as they are in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from cerebro_elastic.extending.state import (
    buffers_of,
    checksum,
    is_users,
    non_persistent_buffers_of,
    parameters_of,
)

MISSING, ALTERED = "missing", "altered"


class LeftOut:
    """Made before the module gets its state, to see what training moves: all else the next unit's constructor
    makes again."""

    def __init__(self, module: pl.LightningModule, callbacks: Iterable[pl.Callback]) -> None:
        own = is_overridden("state_dict", module) or is_overridden("on_save_checkpoint", module)
        saves = own or any(is_users(type(c)) and is_overridden("on_save_checkpoint", c) for c in callbacks)
        self._built = {name: _bits(tensor) for name, tensor in _tensors(module)} if saves else {}

    def of(self, module: nn.Module, saved: Mapping[str, Any]) -> dict[str, dict[str, Tensor]]:
        """The tensors of ``module`` that ``saved``, its checkpoint's state dict, has not as they are: those
        that are ``missing`` and have moved, and those that are ``altered``."""
        found: dict[str, dict[str, Tensor]] = {MISSING: {}, ALTERED: {}}
        for name, tensor in _tensors(module):
            stored = saved.get(name)
            if stored is None and self._built.get(name) != _bits(tensor):
                found[MISSING][name] = tensor.detach()
            elif isinstance(stored, Tensor) and not _same(stored, tensor):
                found[ALTERED][name] = tensor.detach()
        return {how: tensors for how, tensors in found.items() if tensors}


def put(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Put the tensors that ``LeftOut.of`` has found into a module."""
    present = dict(_tensors(module))
    with torch.no_grad():
        for name, value in tensors.items():
            if name in present:
                present[name].copy_(value)


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters, and the buffers that a state dict has."""
    for path, part in module.named_modules(remove_duplicate=False):
        hidden = non_persistent_buffers_of(part)
        for name, tensor in (*parameters_of(part).items(), *buffers_of(part).items()):
            if tensor is not None and name not in hidden and not is_lazy(tensor):
                yield f"{path}.{name}" if path else name, tensor


def _same(one: Tensor, other: Tensor) -> bool:
    if one.layout is not other.layout or one.dtype != other.dtype:
        return False
    if one.layout is torch.strided and one.data_ptr() == other.data_ptr() and one.shape == other.shape:
        return True
    return one.shape == other.shape and _bits(one) == _bits(other)


def _bits(tensor: Tensor) -> str:
    dense = tensor.detach().to_dense() if tensor.layout is not torch.strided else tensor.detach()
    flat = dense.cpu().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
    return f"{tensor.dtype}{tuple(tensor.shape)}{checksum(flat.numpy())}"
