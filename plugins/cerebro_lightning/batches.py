"""A unit's batches, as Lightning takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.utilities.model_helpers import is_overridden

from cerebro_elastic.core.values import Phase
from cerebro_elastic.data.batches import Part, whole
from cerebro_elastic.train import feed
from cerebro_elastic.train.task import UnitJob
from cerebro_lightning.optimizers import NamedStateStrategy
from cerebro_lightning.several import SeveralRanks


class EpochLoader:
    """As long as a whole epoch; yields a part of it."""

    def __init__(self, length: int, batches: Callable[[], Iterator[Any]]) -> None:
        self._length = length
        self._batches = batches

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Any]:
        return self._batches()


class Batches:
    """The batches of ``job``; on several ranks this one's part of each, which ``strategy`` is told."""

    def __init__(self, job: UnitJob, strategy: NamedStateStrategy) -> None:
        self._job = job
        self._several = strategy if isinstance(strategy, SeveralRanks) else None

    def training(self) -> EpochLoader:
        """As long as the epoch, of which a trial does not come to the end."""
        trial = self._job.unit.phase is Phase.TRIAL
        return EpochLoader(feed.epoch_batches(self._job) + trial, self._training)

    def validation(self, module: pl.LightningModule) -> EpochLoader | None:
        """All validation partitions in their natural order; none if the module does not validate."""
        job = self._job
        if not job.validation or not is_overridden("validation_step", module):
            return None
        return EpochLoader(len(list(feed.batch_rows(job, job.validation))), self._validation)

    def _training(self) -> Iterator[Any]:
        job = self._job
        rows = islice(feed.batch_rows(job, [job.partition]), job.skip, None)
        return self._weighed(partial(feed.training_batches, job), rows)

    def _validation(self) -> Iterator[Any]:
        job = self._job
        batches = partial(feed.natural_batches, job, job.validation)
        return self._weighed(batches, feed.batch_rows(job, job.validation))

    def _weighed(self, batches: Callable[[Part], Iterator[Any]], rows: Iterable[int]) -> Iterator[Any]:
        several = self._several
        if several is None:
            yield from batches(whole)
            return
        counts = iter(rows)
        for batch in batches(several.part):
            several.now = several.portion(next(counts))
            yield batch
