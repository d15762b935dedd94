"""A unit's batches: what every task adapter needs to know of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.core.model.units import Phase
from cerebro_elastic.data.batches import LoaderSettings, Part, batch_count, batches, whole
from cerebro_elastic.data.partition import Partition, sample_order
from cerebro_elastic.errors import TaskError
from cerebro_elastic.parallel.group import ranks
from cerebro_elastic.training.task import Stopped, UnitJob


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


def unit_batches(job: UnitJob) -> int:
    """Batches of the job's partition, those to skip included."""
    return batch_count(job.partition.rows, loader_settings(job).batch_size)


def training_batches(job: UnitJob, part: Part = whole) -> Iterator[Any]:
    """The job's partition after ``skip`` batches, in the order that run seed, epoch and partition give; of
    each batch this rank's ``part``.

    Each is made when it is asked for, and none that is skipped. Raises ``Stopped`` in place of a further
    batch when the job is asked to stop: on every rank at the same batch.
    """
    loader = loader_settings(job)
    order = sample_order(job.seed, job.unit.epoch, job.unit.partition, job.partition.rows, loader.shuffle)
    seed = rank_seed(job)
    with closing(batches(job.partition, order, loader, seed=seed, skip=job.skip, part=part)) as made:
        for done in range(job.skip, unit_batches(job)):
            if done > job.skip and job.stop(done):
                raise Stopped(done)
            batch = next(made)
            job.beat()
            yield batch


def rank_seed(job: UnitJob) -> int:
    """A seed for what is random in the unit on this rank: another one on each."""
    rank, _ = ranks()
    where = (job.seed, job.unit.epoch, job.unit.partition, *([rank] if rank else []))
    return int(np.random.SeedSequence(where).generate_state(1)[0])


def natural_batches(job: UnitJob, partitions: Iterable[Partition], part: Part = whole) -> Iterator[Any]:
    """Partitions one after the other, each in its natural order: for validation; of each batch this rank's
    ``part``. In a unit that evaluates ``Stopped`` is raised as in ``training_batches``."""
    loader, done = loader_settings(job), 0
    for partition in partitions:
        for batch in batches(partition, np.arange(partition.rows), loader, part=part):
            if done and job.unit.phase is Phase.EVALUATE and job.stop(done):
                raise Stopped(done)
            job.beat()
            yield batch
            done += 1


def batch_rows(job: UnitJob, partitions: Iterable[Partition]) -> Iterator[int]:
    """The number of rows of each batch of ``partitions``."""
    size = loader_settings(job).batch_size
    for partition in partitions:
        for start in range(0, partition.rows, size):
            yield min(size, partition.rows - start)


def rows_until(job: UnitJob, done: int) -> int:
    """The rows that the job has trained when ``done`` batches of its partition are trained."""
    return sum(islice(batch_rows(job, [job.partition]), job.skip, done))
