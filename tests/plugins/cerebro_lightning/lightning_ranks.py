"""Units of the zoo on several ranks: what each of them does, and what comes of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch.distributed as dist
from lightning_harness import FOLDER, LOADER, Case, job

from cerebro_elastic.core.model.units import CheckpointRef, Strategy
from cerebro_elastic.hop import checkpoint
from cerebro_elastic.hop.checkpoint import Part
from cerebro_elastic.runs.exactness.compare import ExactnessCheck
from cerebro_elastic.runs.exactness.outcome import Exactness
from cerebro_elastic.training.parallel import collectives
from cerebro_elastic.training.parallel.base import Sharding, make_parallelism
from cerebro_elastic.training.parallel.collectives import ranks
from cerebro_elastic.training.parallel.rank_pool import Ranks
from cerebro_elastic.training.task import TaskState, UnitJob, UnitResult
from cerebro_lightning import LightningTask
from support.parts import in_parts

CHOICES = {
    "single": Strategy(),
    "ddp": Strategy("ddp", 2),
    "fsdp": Strategy("fsdp", 2),
    "fsdp alone": Strategy("fsdp", 1),
    "zero-1": Strategy("deepspeed", 2, options={"stage": 1}),
    "zero-2": Strategy("deepspeed", 2, options={"stage": 2}),
    "zero-3": Strategy("deepspeed", 2, options={"stage": 3}),
}

Done = list[tuple[UnitJob, UnitResult]]


def units_by(group: Ranks, case: Case, kinds: Sequence[str], folder: Path, cuts: Sequence[int] = ()) -> Done:
    """All units of a case, each by the next of ``kinds``, over and over: what rank 0 returns. ``cuts`` stop
    each after so many batches. States go through checkpoints in ``folder``."""
    every = [kinds[number % len(kinds)] for number in range(len(places(case)))]
    done: Done = []
    ref: CheckpointRef | None = None
    while len(done) < len(every) * (len(cuts) + 1) and not (done and done[-1][1].done):
        start = len(done) // (len(cuts) + 1)
        stop = next((n for n in range(start, len(every)) if every[n] != every[start]), len(every))
        strategy = CHOICES[every[start]]
        args = (case, range(start, stop), strategy, ref, str(folder), cuts)
        (made, ref), *_ = group.together(some_units, *args, members=range(strategy.ranks))
        done += made
    assert ref is not None
    last, result = done[-1]
    return [*done[:-1], (last, dataclasses.replace(result, state=checkpoint.load(ref)))]


def some_units(
    case: Case,
    numbers: Sequence[int],
    strategy: Strategy,
    ref: CheckpointRef | None,
    folder: str,
    cuts: Sequence[int],
) -> tuple[Done, CheckpointRef]:
    """To be done by each rank: units one after the other, without states and data, and the last one's
    checkpoint."""
    rank, size = ranks()
    part = Part(rank, size) if size > 1 and isinstance(_made(strategy), Sharding) else None
    refs = [ref]

    def saved(state: TaskState) -> TaskState:
        refs.append(_save(state, f"{folder}/{numbers[0]}-{len(refs)}-{strategy}", part))
        loaded: TaskState = checkpoint.load(refs[-1], part)
        return loaded

    state = None if ref is None else checkpoint.load(ref, part)
    done: Done = []
    for number in numbers:
        unit = dataclasses.replace(job(case, *places(case)[number], state), strategy=strategy)
        for result in in_parts(LightningTask(case.section, FOLDER).train, unit, cuts, saved):
            # To send the validation data of a unit that does not validate would read them.
            sent = dataclasses.replace(unit, state=None, validation=())
            done.append((sent, dataclasses.replace(result, state={})))
        state = saved(result.state)
        if result.done:
            break
    assert refs[-1] is not None
    return done, refs[-1]


OWN = np.random.default_rng()


def augmented(batch: Any) -> Any:
    """Also in validation, as of a dataset that is split at random."""
    x, *rest = batch
    return x + x.new_tensor(OWN.normal()), *rest


def checked(case: Case, folder: Path) -> Exactness:
    """The check of a case by four units, in a process of its own."""
    case = dataclasses.replace(case, orders=((0, 1), (1, 0)))
    loader = dataclasses.replace(LOADER, transform=augmented)
    jobs = [
        dataclasses.replace(job(case, *place, None), rows=(14, 10), loader=loader) for place in places(case)
    ]
    return ExactnessCheck(LightningTask(case.section, FOLDER), jobs, FOLDER, str(folder), 120.0).result()


def places(case: Case) -> list[tuple[int, int]]:
    """(epoch, position) of all units, in order."""
    return [(epoch, position) for epoch, order in enumerate(case.orders) for position in range(len(order))]


def _save(state: TaskState, url: str, part: Part | None) -> CheckpointRef:
    """As a worker does it; the reference is every rank's."""
    if part is not None and checkpoint.is_divided(state):
        written = collectives.gathered(checkpoint.save_part(state, url, part))
        ref = [checkpoint.complete(written, url) if written else None]
    else:
        ref = [checkpoint.save(state, url) if ranks()[0] == 0 else None]
    if ranks()[1] > 1:
        dist.broadcast_object_list(ref, src=0)
    assert ref[0] is not None
    return ref[0]


def _made(strategy: Strategy) -> Any:
    return make_parallelism(strategy.parallelism, strategy.options)
