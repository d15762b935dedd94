"""An optimizer's state by parameter name, where Lightning would have numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning.pytorch.core.optimizer import _MockOptimizer
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import Tensor, nn
from torch.optim import Optimizer

from cerebro_elastic.parallel.optimizer_state import from_names, to_names
from cerebro_lightning.plain import cloned


class NamedStateStrategy(SingleDeviceStrategy):
    """One device; optimizer states by the names of parameters."""

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        assert self.lightning_module is not None
        return {} if isinstance(optimizer, _MockOptimizer) else to_names(optimizer, self.lightning_module)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        module = self.lightning_module
        assert module is not None
        for optimizer, named in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            if named:
                load_named(optimizer, module, named)


def load_named(optimizer: Optimizer, module: nn.Module, named: Mapping[str, Any]) -> None:
    """Give a freshly built optimizer a copy of the state ``named`` (see ``parallel/optimizer_state.py``)."""
    _add_groups(optimizer, module, named)
    optimizer.load_state_dict(from_names(cloned(named), optimizer, module))
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
