"""Private names of torch that this folder uses. Tried with torch 2.13, 2.14 and 2.15.

``tests/training/parallel/test_torch_internals.py`` names the ones that an upgrade of torch takes away. Names
that other folders use, too, are in ``cerebro_elastic/system/torch_internals.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch import Tensor, nn

if TYPE_CHECKING:  # torch does not import them on its own: that takes long
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor
    from torch.nn.parallel import DistributedDataParallel


def local_tensor_of(sharded: DTensor) -> Tensor:
    """This rank's rows of a sharded tensor; they are the tensor's own."""
    return sharded._local_tensor


def sharded_like(own: Tensor, like: DTensor) -> DTensor:
    """The sharded tensor with this rank's rows ``own``, divided as ``like`` is. It is made as FSDP2 makes its
    own: ``from_local`` takes ten times as long, for hundreds of tensors."""
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
    """Restart the count of groups. Torch names them by a count, and counts failed ones, too: this rank and
    its peers would then wait for each other under different names."""
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
    """Move a parameter, which stays the same object, into the memory of another tensor, on any device."""
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
