"""What is private to torch's distributed package and used in this folder. Tried with torch 2.13 to 2.15.

``tests/training/parallel/test_torch_internals.py`` names what an upgrade of torch takes away.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

OPTIMIZER_STATE_HOOKS = ("_optimizer_state_dict_post_hooks", "_optimizer_load_state_dict_pre_hooks")
"""The tables of an optimizer's hooks that change what ``state_dict`` gives and ``load_state_dict`` takes."""


def local_tensor_of(sharded: DTensor) -> Tensor:
    """This rank's rows of a sharded tensor; they are the tensor's own."""
    return sharded._local_tensor


def sharded_like(own: Tensor, like: DTensor) -> DTensor:
    """The sharded tensor of which ``own`` are this rank's rows, divided as ``like`` is. It is made as FSDP2
    makes its own: ``from_local`` takes ten times as long, for hundreds of tensors."""
    return DTensor(own, like._spec, requires_grad=False)  # type: ignore[no-untyped-call]


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


def present_groups() -> list[Any]:
    """All groups of this process."""
    return list(c10d._world.pg_map)


def forget_groups_of(mesh: DeviceMesh) -> None:
    """Have a mesh let go of its groups."""
    mesh._pg_registry.clear()


def check_reducer_finished(ddp: DistributedDataParallel) -> None:
    """Raise ``RuntimeError`` if gradients of the last backward pass still wait for others."""
    ddp._check_reducer_finalized()  # type: ignore[no-untyped-call]
