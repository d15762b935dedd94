"""One ordinary ``L.Trainer.fit`` over the batches of units: the reference with which units are compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment

from cerebro_elastic.extending.tasks import Observe, OrdinaryFit, UnitJob, job_batches
from cerebro_lightning.batches import Batches, EpochLoader
from cerebro_lightning.data_module import attached, data_module
from cerebro_lightning.observed import BEGINS, ENDS, observed
from cerebro_lightning.optimizers import NamedStateStrategy
from cerebro_lightning.rows import RowLogger


def ordinary_fit(
    module: pl.LightningModule,
    settings: Mapping[str, Any],
    callbacks: Iterable[pl.Callback],
    jobs: Sequence[UnitJob],
    observe: Observe,
) -> OrdinaryFit:
    """As a script without us would do it: a stock trainer, a loader of all partitions in their order."""
    device = torch.device(jobs[0].device)
    rows, metrics = _Rows(), list[Mapping[str, float]]()
    rows.trainer = trainer = pl.Trainer(
        **settings,
        max_epochs=jobs[0].epochs,
        callbacks=list(callbacks),
        logger=rows,
        accelerator=device.type,
        devices=1 if device.type == "cpu" else [device.index or 0],
        plugins=[LightningEnvironment()],
        num_sanity_val_steps=0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )

    def look(moment: str, values: Mapping[str, Any]) -> None:
        observe(moment, values)
        if (moment == BEGINS and trainer.current_epoch) or moment == ENDS:  # all of the epoch before is over
            metrics.append({name: float(value) for name, value in trainer.callback_metrics.items()})

    def epoch() -> Iterator[Any]:
        present = trainer.current_epoch
        return chain.from_iterable(
            job_batches.training_batches(job) for job in jobs if job.unit.epoch == present
        )

    validation = Batches(next(job for job in jobs if job.last), NamedStateStrategy(device)).validation(module)
    training = EpochLoader(job_batches.epoch_batches(jobs[0]), epoch)
    with observed(look), attached(data_module(jobs[0]), training, validation) as loaders:
        trainer.fit(module, **loaders)
    return OrdinaryFit(rows.rows, metrics)


class _Rows(RowLogger):
    """Keeps the rows of all epochs."""

    trainer: pl.Trainer

    def __init__(self) -> None:
        super().__init__(0)

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self._epoch = self.trainer.current_epoch
        super().log_metrics(metrics, step)
