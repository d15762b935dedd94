"""What rank processes are asked in tests."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from cerebro_elastic.errors import GroupBroken
from cerebro_elastic.parallel import group


def seen() -> list[int]:
    """To be done together: the ranks that each rank hears of."""
    heard: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(heard, dist.get_rank())
    return heard


def see_forever(file: str) -> None:
    """To be done together: ``seen`` without end; ``file`` is there once it has begun."""
    while seen():
        Path(file).touch()


def left_alone() -> str:
    """Rank 0 of a group whose other rank has come to the meeting, and gone: what it is told."""
    store = group.listen("127.0.0.1")
    store.set("here/1", "")
    try:
        with group.formed(store, 0, 2, torch.device("cpu"), timeout=0.5):
            return ""
    except GroupBroken as broken:
        return str(broken)


def split_up() -> None:
    """To be done together: rank 1 leaves by an exception, and rank 0 wants a further group with it."""
    if dist.get_rank() == 1:
        raise ValueError("rank 1's own")
    group.subgroup([0, 1])


def held() -> list[int]:
    """How many threads and open files the process has."""
    return [len(os.listdir(f"/proc/self/{kind}")) for kind in ("task", "fd")]


def tensors() -> int:
    """How many tensors there are that only units can have made."""
    return sum(issubclass(type(found), Tensor) for found in gc.get_objects())
