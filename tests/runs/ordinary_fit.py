"""One ordinary ``fit`` over a run's partitions in the order of a config's visits, as a script has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import lightning as L
import numpy as np

from cerebro_elastic import RunResult
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.data.reading.batches import batches
from cerebro_elastic.data.reading.partition import sample_order
from cerebro_elastic.registry import import_object
from cerebro_elastic.reporting.results import ConfigResult
from cerebro_elastic.training.task import UnitJob
from cerebro_elastic.training.unit_runner import UnitRunner

EPOCHS, PARTITIONS = 2, 3


class Loaders:
    """The loaders of an ordinary script: in each epoch the partitions as the config has visited them."""

    def __init__(self, result: RunResult, row: ConfigResult) -> None:
        self._bench = UnitRunner(result.spec, result.folder.cache, "cpu")
        self._row = row
        self._seed = result.recipe.seed
        self.train = Sized(self._training)
        self.valid = Sized(self._validation)
        self.epoch = 0

    def _jobs(self) -> Iterator[UnitJob]:
        visits = [visit for visit in self._row.visits if visit.unit.epoch == self.epoch]
        for k, visit in enumerate(visits):
            visited = tuple(before.unit.partition for before in visits[:k])
            yield self._bench.job(Config(self._row.config, {}, visited=visited), visit.unit, None)

    def _training(self) -> Iterator[Any]:
        for job in self._jobs():
            order = sample_order(self._seed, self.epoch, job.unit.partition, job.partition.rows)
            yield from batches(job.partition, order, job.loader)

    def _validation(self) -> Iterator[Any]:
        *_, last = self._jobs()
        for part in last.validation:
            yield from batches(part, np.arange(part.rows), last.loader)


class Sized:
    """An iterable that knows its length."""

    def __init__(self, items: Callable[[], Iterator[Any]]) -> None:
        self._items = items

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[Any]:
        return self._items()


class EpochMetrics(L.Callback):
    """Says which epoch it is, and what is logged when everything of it is over."""

    def __init__(self, loaders: Loaders) -> None:
        self._loaders = loaders
        self.seen: list[dict[str, float]] = []

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:  # noqa: ARG002
        self._loaders.epoch = trainer.current_epoch
        if trainer.current_epoch:
            self.take(trainer)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:  # noqa: ARG002
        self.take(trainer)

    def take(self, trainer: L.Trainer) -> None:
        self.seen.append({name: float(value) for name, value in trainer.callback_metrics.items()})


def ordinary_fit(result: RunResult, row: ConfigResult) -> tuple[L.Trainer, L.LightningModule, EpochMetrics]:
    """What a script without us does."""
    recipe, loaders = result.recipe, Loaders(result, row)
    L.seed_everything(recipe.seed, verbose=False)
    module = import_object(recipe.task.module, recipe.root)(**row.hparams)  # type: ignore[attr-defined]
    metrics = EpochMetrics(loaders)
    trainer = L.Trainer(
        max_epochs=EPOCHS,
        gradient_clip_val=0.5,
        accumulate_grad_batches=2,
        accelerator="cpu",
        logger=False,
        callbacks=[metrics],
        num_sanity_val_steps=0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, loaders.train, loaders.valid)
    return trainer, module, metrics
