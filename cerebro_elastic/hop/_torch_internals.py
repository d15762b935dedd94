"""Private names of torch that this folder uses. Tried with torch 2.13, 2.14 and 2.15.

``tests/system/test_torch_internals.py`` names the ones that an upgrade of torch takes away. Names that other
folders use, too, are in ``cerebro_elastic/system/torch_internals.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils.prune import BasePruningMethod
from torch.optim import Optimizer

from cerebro_elastic.system import deferred_compiler

deferred_compiler.defer()  # before the first optimizer

CALL_HOOK_TABLES = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
"""The tables of a module's hooks that run when it is called or differentiated; a parameter has the last."""

PARAMETER_HOOK_TABLES = ("_backward_hooks", "_post_accumulate_grad_hooks")
"""The tables of a parameter's hooks."""

OPTIMIZER_HOOK_TABLES = (
    "_optimizer_step_pre_hooks",
    "_optimizer_step_post_hooks",
    "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks",
    "_optimizer_load_state_dict_pre_hooks",
    "_optimizer_load_state_dict_post_hooks",
)
"""The tables of hooks that an optimizer may have."""

OPTIMIZER_ATTRIBUTES = frozenset(vars(torch.optim.SGD([torch.zeros(1)]))) | {"step", "state", "param_groups"}
"""Attributes of every optimizer: no user's code has set them."""

MOVED_RATES = ("base_lrs", "_last_lr")
"""Where a scheduler keeps learning rates, one for each group of parameters."""

_LAZY_HOOK = "LazyModuleMixin._infer_parameters"
_LAZY_HOOK_HANDLES = ("_initialize_hook", "_load_hook")


def hooks_of(owner: nn.Module | Tensor | Optimizer, table: str) -> dict[int, Any]:
    """The hooks in one of these tables; empty if the owner has none of them."""
    hooks: dict[int, Any] = getattr(owner, table, None) or {}
    return hooks


def pruned_name(method: BasePruningMethod) -> str:
    """The name of the parameter that a pruning method masks."""
    return str(method._tensor_name)


def is_lazy_hook(name: str) -> bool:
    """Whether a hook of this name is the one that makes a lazy module real at its first batch."""
    return name.endswith(_LAZY_HOOK)


def finalize_lazy_module(module: LazyModuleMixin) -> None:
    """Initialise a lazy module that has its values, as its first batch would."""
    if _LAZY_HOOK_HANDLES[0] not in vars(module) or module.has_uninitialized_params():  # type: ignore[misc]
        return
    for name in _LAZY_HOOK_HANDLES:
        getattr(module, name).remove()
        delattr(module, name)
    if module.cls_to_become is not None:
        module.__class__ = module.cls_to_become


def with_inner_schedulers(schedulers: Sequence[Any]) -> Iterator[Any]:
    """The schedulers, and the parts of chained and sequential ones."""
    for scheduler in schedulers:
        yield scheduler
        yield from with_inner_schedulers(getattr(scheduler, "_schedulers", ()))


OPTIMIZER_STATE_HOOKS = ("_optimizer_state_dict_post_hooks", "_optimizer_load_state_dict_pre_hooks")
"""The tables of an optimizer's hooks that change its state in ``state_dict`` and ``load_state_dict``."""
