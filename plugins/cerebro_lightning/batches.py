"""A unit's batches, as Lightning takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.utilities.model_helpers import is_overridden

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.tasks import BatchPart, Phase, UnitJob, job_batches, whole
from cerebro_lightning.data_module import data_module
from cerebro_lightning.distributed import DistributedStrategy
from cerebro_lightning.optimizers import NamedStateStrategy
from cerebro_lightning.validation_loaders import ValidationLoader, validation_loaders


class Rows:
    """Stands for a loader's dataset: it has a length, for losses that weigh by it."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return self._rows


class EpochLoader:
    """As long as a whole epoch; yields a part of it."""

    def __init__(
        self,
        length: int,
        batches: Callable[[], Iterator[Any]],
        *,
        rows: int = 0,
        batch_size: int | None = None,
    ) -> None:
        """``rows`` are those of the whole epoch."""
        self.batch_size = batch_size
        self.dataset = Rows(rows)
        self._length = length
        self._batches = batches

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Any]:
        return self._batches()


class UnitLoader(EpochLoader):
    """Yields the unit's part of the epoch, to the training loop alone."""

    _open = False

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Inside, the training loop takes its iterator."""
        self._open = True
        try:
            yield
        finally:
            self._open = False

    def __iter__(self) -> Iterator[Any]:
        if not self._open:
            raise TaskError(
                "the module or a callback walks through the training batches itself "
                "(trainer.train_dataloader), but a unit has those of one partition, not of the epoch: add "
                "up in training_step what it needs, or compute it before the run and give it in task.args"
            )
        return super().__iter__()


class Batches:
    """The batches of ``job``; with several ranks, this rank's share of each batch; ``strategy`` learns its
    size."""

    def __init__(self, job: UnitJob, strategy: NamedStateStrategy) -> None:
        self._job = job
        self._several = strategy if isinstance(strategy, DistributedStrategy) else None

    def training(self) -> UnitLoader:
        """As long as the epoch. A profile ends before it."""
        profile = self._job.unit.phase is Phase.PROFILE
        return UnitLoader(
            job_batches.epoch_batches(self._job) + profile,
            self._training,
            rows=sum(self._job.rows),
            batch_size=job_batches.loader_settings(self._job).batch_size,
        )

    def validation(self, module: pl.LightningModule) -> EpochLoader | list[ValidationLoader] | None:
        """The data module's own loaders, or all validation partitions in their natural order; none if the
        module does not validate. Units in the middle of an epoch have them, too, for code that reads their
        length; they read no batch."""
        job = self._job
        if not is_overridden("validation_step", module):
            return None
        if (of_module := data_module(job)) is not None:
            return validation_loaders(of_module, job, self._several)
        if not job.validation:
            return None
        return EpochLoader(
            job_batches.validation_batches(job, job.validation),
            self._validation,
            rows=sum(part.rows for part in job.validation),
            batch_size=job_batches.validation_settings(job).batch_size,
        )

    def _training(self) -> Iterator[Any]:
        job = self._job
        rows = islice(job_batches.training_rows(job), job.skip, None)
        return self._weighed(partial(job_batches.training_batches, job), rows)

    def _validation(self) -> Iterator[Any]:
        job = self._job
        batches = partial(job_batches.natural_batches, job, job.validation)
        return self._weighed(batches, job_batches.validation_rows(job, job.validation))

    def _weighed(self, batches: Callable[[BatchPart], Iterator[Any]], rows: Iterable[int]) -> Iterator[Any]:
        several = self._several
        if several is None:
            yield from batches(whole)
            return
        counts = iter(rows)
        for batch in batches(several.part):
            several.now = several.portion(next(counts))
            yield batch
