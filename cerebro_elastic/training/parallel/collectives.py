"""Small values that the ranks of a unit exchange beside gradients, by the group's CPU side.

Every rank calls each function, in the same order; without a group it is the identity, and needs no torch.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any


def any_of(flag: bool) -> bool:
    """Whether some rank says yes: the same answer for all."""
    return not least(not flag)


def least(value: int) -> int:
    """The smallest of the ranks' values, for all."""
    return least_of([value])[0]


def least_of(values: Sequence[int]) -> list[int]:
    """The same for several values at once."""
    if ranks()[1] == 1 or not values:
        return [*values]
    torch, dist = _torch()
    smallest = torch.tensor(values)
    dist.all_reduce(smallest, dist.ReduceOp.MIN)
    return [int(value) for value in smallest]


def total(value: float) -> float:
    """The sum over all ranks, added up in their order: the same bits for all, whenever it is done again."""
    _, size = ranks()
    if size == 1:
        return value
    torch, dist = _torch()
    addends = [torch.zeros((), dtype=torch.float64) for _ in range(size)]
    dist.all_gather(addends, torch.tensor(value, dtype=torch.float64))
    return sum(float(one) for one in addends)


def means(metrics: Mapping[str, float]) -> dict[str, float]:
    """The mean of each metric over the ranks, which have the same metrics."""
    _, size = ranks()
    return {name: total(value) / size for name, value in metrics.items()} if size > 1 else dict(metrics)


def gathered(value: Any) -> list[Any]:
    """Every rank's value, in order, on rank 0; an empty list on the others."""
    rank, size = ranks()
    if size == 1:
        return [value]
    _, dist = _torch()
    heard: list[Any] | None = [None] * size if rank == 0 else None
    dist.gather_object(value, heard, dst=0)
    return heard or []


def _torch() -> tuple[ModuleType, ModuleType]:
    return import_module("torch"), import_module("torch.distributed")


def ranks() -> tuple[int, int]:
    """This rank and the number of ranks of the group; (0, 1) without one."""
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_initialized():
        return 0, 1
    return dist.get_rank(), dist.get_world_size()
