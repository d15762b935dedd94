"""Functions that rank processes run in tests."""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from cerebro_elastic.errors import GroupBroken
from cerebro_elastic.training.parallel import group


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
    """Rank 0 of a group whose other rank has come to the meeting, and gone: the error that it gets."""
    store = group.listen("127.0.0.1")
    store.set("here/1", "")
    try:
        with group.formed(store, 0, 2, torch.device("cpu"), timeout=0.5):
            return ""
    except GroupBroken as broken:
        return str(broken)


def end_in_a_collective(file: str) -> None:
    """To be done together: rank 0 ends with a model by DDP in a cycle, and a tensor that only the collective
    holds, to which rank 1 comes when rank 0 frees what is in cycles (``file``)."""
    rank, tensor = dist.get_rank(), torch.ones(1_000_000)
    model: Any = DistributedDataParallel(nn.Linear(2, 2))
    model.itself = [model]

    def freeing(_phase: str, _info: dict[str, int]) -> None:
        gc.callbacks.remove(freeing)
        gc.enable()
        Path(file).touch()

    if rank == 0:
        gc.disable()
        gc.callbacks.append(freeing)
        dist.all_reduce(tensor, async_op=True)
        return
    while not Path(file).exists():
        time.sleep(0.01)
    dist.all_reduce(tensor)


def open_resources() -> list[int]:
    """How many threads and open files the process has."""
    return [len(os.listdir(f"/proc/self/{kind}")) for kind in ("task", "fd")]


def loops() -> int:
    """How many groups the process has, by gloo's threads, one each."""
    return [file.read_text() for file in Path("/proc/self/task").glob("*/comm")].count("gloo_tcp_loop\n")


def tensors() -> int:
    """How many tensors there are that only units can have made."""
    return sum(issubclass(type(value), Tensor) for value in gc.get_objects())
