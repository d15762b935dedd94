"""Units of models with frozen layers, whose states go by storage: what each of their ranks does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from cerebro_elastic.core.model.units import CheckpointRef, Strategy, Unit
from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.data.reading.partition import Partition
from cerebro_elastic.hop import checkpoint
from cerebro_elastic.recipes import TorchSection
from cerebro_elastic.training.functions import FunctionTask
from cerebro_elastic.training.parallel.collectives import ranks
from cerebro_elastic.training.task import Task, UnitJob
from cerebro_elastic.worker.saving import part_of, save, save_part
from cerebro_lightning import LightningTask
from cerebro_lightning.section import LightningSection

ROWS, EPOCHS = (8, 4), 3
FOLDER = Path(__file__).parent


def torch_task() -> Task:
    return FunctionTask(TorchSection(model_fn="frozen_net:model", train_fn="frozen_net:train"), FOLDER)


def dense_torch_task() -> Task:
    return FunctionTask(TorchSection(model_fn="frozen_net:dense_model", loss="cross_entropy"), FOLDER)


def unfreezing_torch_task() -> Task:
    return FunctionTask(TorchSection(model_fn="frozen_net:dense_model", train_fn="frozen_net:train"), FOLDER)


def lightning_task() -> Task:
    section = LightningSection(
        kind="lightning", module="frozen_net:Module", callbacks=["frozen_net:finetuning"]
    )
    return LightningTask(section, FOLDER)


def averaging_task() -> Task:
    section = LightningSection(
        kind="lightning",
        module="frozen_net:Module",
        args={"strided": False},
        callbacks=["EMAWeightAveraging"],
    )
    return LightningTask(section, FOLDER)


def partition(index: int) -> Partition:
    x = np.random.default_rng(index).standard_normal((ROWS[index], 6)).astype(np.float32)
    return Partition(index, ROWS[index], {"x": x, "y": (x.sum(1) > 0).astype(np.int64)})


def jobs() -> Iterator[UnitJob]:
    for epoch in range(EPOCHS):
        for index in range(len(ROWS)):
            yield UnitJob(
                unit=Unit("c0", epoch, index),
                hparams={},
                seed=5,
                epochs=EPOCHS,
                visited=tuple(range(index)),
                rows=ROWS,
                partition=partition(index),
                validation=(),
                loader=LoaderSettings(4),
                state=None,
                device="cpu",
            )


def units(
    make: Callable[[], Task],
    root: str,
    strategies: Sequence[Strategy],
    head: CheckpointRef | None,
    whole: bool,
) -> list[CheckpointRef]:
    """To be done together: units from ``head`` on, by one strategy after the other. Their states go by
    storage, with bases or ``whole``."""
    torch.set_num_threads(1)
    rank, size = ranks()
    done = 0 if head is None else int(Path(head.url).name) + 1
    refs: list[CheckpointRef] = []
    for number, (job, strategy) in enumerate([*zip(list(jobs())[done:], strategies, strict=False)], done):
        part, before = part_of(strategy, rank), refs[-1] if refs else head
        state = None if before is None else checkpoint.load(before, part)
        stays = checkpoint.stays_in(state)
        result = make().train(replace(job, state=state, stays=stays, strategy=strategy))
        still = {} if whole else {**result.before, **stays}
        url = f"{root}/checkpoints/{'whole' if whole else 'c0'}/{number}"
        parts = save_part(result.state, url, part, still)
        ref = [save(result.state, url, parts, still) if rank == 0 else None]
        if size > 1:
            dist.broadcast_object_list(ref, src=0)
        assert ref[0] is not None
        refs.append(ref[0])
    return refs
