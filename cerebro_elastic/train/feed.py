"""A unit's batches: what every task adapter needs to know of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from cerebro_elastic.core.values import HParams
from cerebro_elastic.data.batches import LoaderSettings, batch_count, batches
from cerebro_elastic.data.order import sample_order
from cerebro_elastic.data.partition import Partition
from cerebro_elastic.errors import TaskError
from cerebro_elastic.train.task import UnitJob


def check_batch_size(hparams: HParams) -> None:
    """``batch_size`` may be a hyper-parameter. Raises ``TaskError`` if it is out of range."""
    size = hparams.get("batch_size", 1)
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise TaskError(f"batch_size is {size!r}: it must be a whole number of at least 1")


def loader_settings(job: UnitJob) -> LoaderSettings:
    """The recipe's settings, with the config's own ``batch_size`` if it has one."""
    return replace(job.loader, batch_size=job.hparams.get("batch_size", job.loader.batch_size))


def epoch_batches(job: UnitJob) -> int:
    """Batches of one whole epoch. They never span partitions."""
    size = loader_settings(job).batch_size
    return sum(batch_count(rows, size) for rows in job.rows)


def training_batches(job: UnitJob) -> Iterator[Any]:
    """The job's partition, in the order that run seed, epoch and partition give."""
    loader = loader_settings(job)
    where = (job.seed, job.unit.epoch, job.unit.partition)
    order = sample_order(*where, job.partition.rows, loader.shuffle)
    worker_seed = int(np.random.SeedSequence(where).generate_state(1)[0])
    return batches(job.partition, order, loader, seed=worker_seed)


def natural_batches(job: UnitJob, partitions: Iterable[Partition]) -> Iterator[Any]:
    """Partitions one after the other, each in its natural order: for validation."""
    loader = loader_settings(job)
    for partition in partitions:
        yield from batches(partition, np.arange(partition.rows), loader)


def batch_rows(job: UnitJob, partitions: Iterable[Partition]) -> Iterator[int]:
    """The number of rows of each batch of ``partitions``."""
    size = loader_settings(job).batch_size
    for partition in partitions:
        for start in range(0, partition.rows, size):
            yield min(size, partition.rows - start)
