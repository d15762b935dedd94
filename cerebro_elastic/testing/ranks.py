"""What rank processes are asked in tests."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor


def seen() -> list[int]:
    """To be done together: the ranks that each rank hears of."""
    heard: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(heard, dist.get_rank())
    return heard


def see_forever(file: str) -> None:
    """To be done together: ``seen`` without end; ``file`` is there once it has begun."""
    while seen():
        Path(file).touch()


def held() -> list[int]:
    """How many threads and open files the process has."""
    return [len(os.listdir(f"/proc/self/{kind}")) for kind in ("task", "fd")]


def tensors() -> int:
    """How many tensors there are that only units can have made."""
    return sum(issubclass(type(found), Tensor) for found in gc.get_objects())
