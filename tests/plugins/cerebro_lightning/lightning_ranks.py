"""Units of the zoo on several ranks: what each of them does, and what comes of it."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from lightning_harness import FOLDER, Case, hop, job

from cerebro_elastic.core.values import Choice
from cerebro_elastic.parallel import group
from cerebro_elastic.testing.parts import in_parts
from cerebro_elastic.testing.ranks import Ranks
from cerebro_elastic.train.task import State, UnitJob, UnitResult
from cerebro_lightning import LightningTask

CHOICES = {
    "single": Choice(),
    "ddp": Choice("ddp", 2),
    "fsdp": Choice("fsdp", 2),
    "zero-1": Choice("deepspeed", 2, options={"stage": 1}),
    "zero-2": Choice("deepspeed", 2, options={"stage": 2}),
    "zero-3": Choice("deepspeed", 2, options={"stage": 3}),
}


def places(case: Case) -> list[tuple[int, int]]:
    """(epoch, position) of all units, in order."""
    return [(epoch, position) for epoch, order in enumerate(case.orders) for position in range(len(order))]


def some_units(
    case: Case, numbers: Sequence[int], choice: Choice, given: bytes | None, cuts: Sequence[int] = ()
) -> bytes:
    """To be done by each rank: units one after the other; ``cuts`` stop each after so many batches."""
    torch.set_num_threads(1)
    state = None if given is None else unpacked(given)
    done: list[tuple[UnitJob, UnitResult]] = []
    for number in numbers:
        unit = dataclasses.replace(job(case, *places(case)[number], state), choice=choice)
        for result in in_parts(LightningTask(case.section, FOLDER).train, unit, cuts, told):
            done.append((unit, result))
        if done[-1][1].done:
            break
        state = told(done[-1][1].state)
    return packed([(dataclasses.replace(unit, stop=None, beat=None), result) for unit, result in done])


def units_by(
    ranks: Ranks, case: Case, kinds: Sequence[str], cuts: Sequence[int] = ()
) -> list[tuple[UnitJob, UnitResult]]:
    """All units of a case, each unit by the next of ``kinds``, over and over: what rank 0 returns."""
    done: list[tuple[UnitJob, UnitResult]] = []
    state: bytes | None = None
    every = [kinds[number % len(kinds)] for number in range(len(places(case)))]
    start = 0
    while start < len(every) and not (done and done[-1][1].done):
        stop = start + 1
        while stop < len(every) and every[stop] == every[start]:
            stop += 1
        choice = CHOICES[every[start]]
        numbers = range(start, stop)
        made = ranks.together(some_units, case, numbers, choice, state, cuts, members=range(choice.ranks))
        done += unpacked(made[0])
        state, start = packed(hop(done[-1][1].state)), stop
    return done


def told(state: State) -> State:
    """Rank 0's, on every rank, as if each had read the checkpoint."""
    heard = [hop(state) if group.ranks()[0] == 0 else None]
    if group.ranks()[1] > 1:
        dist.broadcast_object_list(heard, src=0)
    assert heard[0] is not None
    return heard[0]


def packed(value: Any) -> bytes:
    target = io.BytesIO()
    torch.save(value, target)
    return target.getvalue()


def unpacked(value: bytes) -> Any:
    return torch.load(io.BytesIO(value), weights_only=False)
