"""An optimizer's state by parameter name, where Lightning would have numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from cerebro_elastic.train.optimizer_state import from_names


def load_named(optimizer: Optimizer, module: nn.Module, named: Mapping[str, Any]) -> None:
    """Give a freshly built optimizer the state ``named`` (see ``train/optimizer_state.py``)."""
    _add_groups(optimizer, module, named)
    optimizer.load_state_dict(from_names(named, optimizer, module))
    _undo_casts(optimizer, module, named)


def _add_groups(optimizer: Optimizer, module: nn.Module, named: Mapping[str, Any]) -> None:
    """Parameter groups that were added during training (by unfreezing, for example)."""
    for group in named["param_groups"][len(optimizer.param_groups) :]:
        optimizer.add_param_group({"params": [module.get_parameter(name) for name in group["params"]]})


def _undo_casts(optimizer: Optimizer, module: nn.Module, named: Mapping[str, Any]) -> None:
    """``Optimizer.load_state_dict`` casts slots to their parameter's dtype, which may lose bits."""
    for name, slots in named["state"].items():
        loaded = optimizer.state[module.get_parameter(name)]
        for slot, value in slots.items():
            if isinstance(value, Tensor) and loaded[slot].dtype != value.dtype:
                loaded[slot] = value.to(loaded[slot].device, copy=True)
