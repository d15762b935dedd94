"""Private names of DeepSpeed, and of torch for its import. Tested with DeepSpeed 0.19.8, torch 2.13 to 2.15.

``tests/training/parallel/test_deepspeed_internals.py`` names the ones that an upgrade takes away.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
import torch.distributed.distributed_c10d as c10d
from torch import Tensor, nn


@contextmanager
def without_a_default_group() -> Iterator[None]:
    """Hide the group of all ranks: an import of DeepSpeed would keep it for its functions' default
    arguments."""
    default = c10d._world.default_pg
    c10d._world.default_pg = None
    try:
        yield
    finally:
        c10d._world.default_pg = default


def link_optimizer_state(zero: Any) -> None:
    """Let a ZeRO optimizer find the slots: with several groups it does so too early, in the first one's
    step."""
    zero._hp_optimizer_states_linked = False
    zero._lazy_init_hp_params_optimizer_state()


def avoid_shared_memory_collectives(package: ModuleType) -> None:
    """Make DeepSpeed work without its collectives in shared memory. They are the only native code that its
    import would compile, which takes minutes."""
    package.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def set_accelerator(package: ModuleType, name: str) -> None:
    """Have DeepSpeed work on devices of a kind: ``CPU`` or ``CUDA``."""
    module = importlib.import_module(f"deepspeed.accelerator.{name.lower()}_accelerator")
    package.accelerator.set_accelerator(getattr(module, f"{name}_Accelerator")())


def forget_backend() -> None:
    """Have DeepSpeed let go of its group."""
    vars(importlib.import_module("deepspeed.comm.comm"))["cdb"] = None


def forget_forward_passes() -> None:
    """Make ZeRO-3 release the modules whose forward pass it follows."""
    importlib.import_module("deepspeed.runtime.zero.parameter_offload").FWD_MODULE_STACK.clear()


def partition_of(parameter: nn.Parameter) -> Tensor:
    """This rank's part of a parameter under ZeRO-3, flat."""
    partition: Tensor = parameter.ds_tensor  # type: ignore[attr-defined]
    return partition


def shape_of(parameter: nn.Parameter) -> torch.Size:
    """A parameter's own shape: ZeRO-3 leaves an empty one in its place."""
    shape: torch.Size = getattr(parameter, "ds_shape", parameter.shape)
    return shape


def flat_groups_of(zero: Any, *, sharded: bool) -> list[tuple[Tensor, list[nn.Parameter]]]:
    """The flat tensors that a ZeRO optimizer steps, and the parameters that each consists of."""
    tensors, groups = (
        (zero.fp32_partitioned_groups_flat, zero.fp16_groups)
        if sharded
        else (zero.single_partition_of_fp32_groups, zero.bit16_groups)
    )
    return [(tensor, list(group)) for tensor, group in zip(tensors, groups, strict=True)]
