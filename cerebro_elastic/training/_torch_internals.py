"""What is private to torch and used in this folder. Tried with torch 2.13, 2.14 and 2.15.

``tests/system/test_torch_internals.py`` names what an upgrade of torch takes away, and for its distributed
package ``tests/training/parallel/test_torch_internals.py``. Names that other folders use, too, are in
``cerebro_elastic/system/torch_internals.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils.prune import BasePruningMethod
from torch.optim import Optimizer

if TYPE_CHECKING:  # torch does not import them by itself: that takes long
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor
    from torch.nn.parallel import DistributedDataParallel

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
"""What every optimizer has: none of it was set by a user's code."""

MOVED_RATES = ("base_lrs", "_last_lr")
"""Where a scheduler keeps learning rates, one for each group of parameters."""

_LAZY_HOOK = "LazyModuleMixin._infer_parameters"
_LAZY_HOOK_HANDLES = ("_initialize_hook", "_load_hook")


def hooks_of(owner: nn.Module | Tensor | Optimizer, table: str) -> dict[int, Any]:
    """The hooks in one of these tables; empty if the owner has none of them."""
    hooks: dict[int, Any] = getattr(owner, table, None) or {}
    return hooks


def refresh_flat_weights(module: nn.RNNBase) -> None:
    """Have a recurrent module take its present parameters."""
    module._init_flat_weights()


def pruned_name(method: BasePruningMethod) -> str:
    """The name of the parameter that a pruning method masks."""
    return str(method._tensor_name)


def is_lazy_hook(name: str) -> bool:
    """Whether a hook of this name is the one that makes a lazy module real at its first batch."""
    return name.endswith(_LAZY_HOOK)


def finalize_lazy_module(module: LazyModuleMixin) -> None:
    """Do to a lazy module that has its values what its first batch would do to it."""
    if _LAZY_HOOK_HANDLES[0] not in vars(module) or module.has_uninitialized_params():  # type: ignore[misc]
        return
    for name in _LAZY_HOOK_HANDLES:
        getattr(module, name).remove()
        delattr(module, name)
    if module.cls_to_become is not None:
        module.__class__ = module.cls_to_become


def with_inner_schedulers(schedulers: Sequence[Any]) -> Iterator[Any]:
    """The schedulers, and those that chained and sequential ones are made of."""
    for scheduler in schedulers:
        yield scheduler
        yield from with_inner_schedulers(getattr(scheduler, "_schedulers", ()))


OPTIMIZER_STATE_HOOKS = ("_optimizer_state_dict_post_hooks", "_optimizer_load_state_dict_pre_hooks")
"""The tables of an optimizer's hooks that change what ``state_dict`` gives and ``load_state_dict`` takes."""


def local_tensor_of(sharded: DTensor) -> Tensor:
    """This rank's rows of a sharded tensor; they are the tensor's own."""
    return sharded._local_tensor


def sharded_like(own: Tensor, like: DTensor) -> DTensor:
    """The sharded tensor of which ``own`` are this rank's rows, divided as ``like`` is. It is made as FSDP2
    makes its own: ``from_local`` takes ten times as long, for hundreds of tensors."""
    return type(like)(own, like._spec, requires_grad=False)


def patience_of_the_group() -> timedelta:
    """How long a collective of the group of all ranks may take."""
    every = dist.group.WORLD._get_backend(torch.device("cpu"))  # type: ignore[union-attr]
    patience: timedelta = every.options._timeout
    return patience


def set_patience_of_the_group(patience: timedelta) -> None:
    """Set how long a collective of the group of all ranks may take, from the next one on."""
    c10d._set_pg_timeout(patience, dist.group.WORLD)


def forget_failed_groups() -> None:
    """Begin to count groups anew. Torch names them by a count, and counts what fails: for ever after, this
    rank and its peers would wait for each other under different names."""
    c10d._world.group_count = 0


def abort_groups(device: torch.device) -> None:
    """Abort the present groups of ``device``, from any thread. Torch has them until their unit ends."""
    backend: Any = dist.group.WORLD._get_backend(device)  # type: ignore[union-attr]
    at_once = hasattr(backend, "_group_start")  # NCCL's communicators would wait for each other
    if at_once:
        backend._group_start()
    for each in reversed(present_groups()):
        each.abort()
    if at_once:
        backend._group_end()


@contextmanager
def same_parameters(device: torch.device) -> Iterator[None]:
    """Within the block parameters that move to ``device`` stay the same objects, tied ones tied. On
    devices of other makers (PrivateUse1) torch would make others by default."""
    swaps = torch.__future__.get_swap_module_params_on_conversion()
    other = device.type == torch._C._get_privateuse1_backend_name()
    torch.__future__.set_swap_module_params_on_conversion(swaps or other)
    try:
        yield
    finally:
        torch.__future__.set_swap_module_params_on_conversion(swaps)


def move_parameter(own: nn.Parameter, device: torch.device) -> None:
    """Move a parameter, which stays the same object."""
    give_memory(own, own.detach().to(device))


def give_memory(own: nn.Parameter, memory: Tensor) -> None:
    """Have a parameter, which stays the same object, be in the memory of another tensor, on any device."""
    holder = nn.Module()
    holder.own = own
    with same_parameters(memory.device):
        holder._apply(lambda _: memory)  # type: ignore[no-untyped-call]


def present_groups() -> list[Any]:
    """All groups of this process."""
    return list(c10d._world.pg_map)


def forget_groups_of(mesh: DeviceMesh) -> None:
    """Have a mesh let go of its groups."""
    mesh._pg_registry.clear()


def check_reducer_finished(ddp: DistributedDataParallel) -> None:
    """Raise ``RuntimeError`` if gradients of the last backward pass still wait for others."""
    ddp._check_reducer_finalized()  # type: ignore[no-untyped-call]
