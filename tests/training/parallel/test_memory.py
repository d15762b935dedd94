"""Units leave nothing in the memory of their ranks, under any parallelism (``benchmarks/memory.py`` does
more of them)."""

from __future__ import annotations

import pytest

from cerebro_elastic.training.parallel.rank_pool import Ranks
from cerebro_elastic.worker.resources import bytes_in_use
from support.hops import unit
from support.ranks import tensors

CPU = "cpu"
KINDS = [("single", {}), ("ddp", {}), ("fsdp", {}), ("deepspeed", {"stage": 1}), ("deepspeed", {"stage": 3})]
MOST = 4_000_000
"""Bytes by which two ranks may grow in ten units."""


@pytest.mark.cluster
def test_units_of_alternating_parallelisms_leave_nothing(ranks: Ranks) -> None:
    state: bytes | None = None

    def some_units(rounds: int) -> None:
        nonlocal state
        for number in range(rounds * len(KINDS)):
            name, options = KINDS[number % len(KINDS)]
            members = range(1 if name == "single" else 2)
            state, *_ = ranks.together(unit, name, options, "adamw", state, [number], members=members)

    def left() -> tuple[list[int], int]:
        every = range(2)
        return [ranks.alone(r, tensors) for r in every], sum(ranks.alone(r, bytes_in_use, CPU) for r in every)

    some_units(2)  # imports and caches
    before, size = left()
    some_units(2)
    after, grown = left()
    assert after == before
    assert grown - size < MOST
