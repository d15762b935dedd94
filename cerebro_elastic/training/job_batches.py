"""The batches of a unit, for every task adapter."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import accumulate, islice
from operator import itemgetter
from typing import Any

import numpy as np

from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.core.model.units import Phase
from cerebro_elastic.data.reading.batches import (
    BatchPart,
    batch_count,
    training_order,
    whole,
)
from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.data.reading.partition import Partition
from cerebro_elastic.errors import TaskError
from cerebro_elastic.training.parallel.collectives import ranks
from cerebro_elastic.training.task import Stopped, UnitJob


def check_batch_size(hparams: HParams) -> None:
    """Raise ``TaskError`` if the hyper-parameters give a ``batch_size`` that is out of range."""
    size = hparams.get("batch_size", 1)
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise TaskError(f"batch_size is {size!r}: it must be a whole number of at least 1")


def loader_settings(job: UnitJob) -> LoaderSettings:
    """The recipe's settings, with the config's own ``batch_size`` if it has one."""
    return replace(job.loader, batch_size=job.hparams.get("batch_size", job.loader.batch_size))


def validation_settings(job: UnitJob) -> LoaderSettings:
    """The settings of validation batches."""
    loader = loader_settings(job)
    return replace(loader, batch_size=loader.valid_batch_size or loader.batch_size)


def epoch_batches(job: UnitJob) -> int:
    """How many batches a whole epoch has. They never span partitions."""
    loader = loader_settings(job)
    return sum(batch_count(rows, loader.batch_size, loader.drop_last) for rows in job.rows)


def budget(job: UnitJob) -> dict[str, int]:
    """The length of the config's training, by the names of functions' parameters."""
    return {"epochs": job.epochs, "steps": job.epochs * epoch_batches(job)}


def unit_batches(job: UnitJob) -> int:
    """How many batches the job has, those to skip included."""
    if job.unit.phase is Phase.EVALUATE:
        return validation_batches(job, [job.partition])
    loader = loader_settings(job)
    return batch_count(job.partition.rows, loader.batch_size, loader.drop_last)


def validation_batches(job: UnitJob, partitions: Iterable[Partition]) -> int:
    """How many batches ``partitions`` have for validation."""
    size = validation_settings(job).batch_size
    return sum(batch_count(partition.rows, size) for partition in partitions)


def training_batches(job: UnitJob, part: BatchPart = whole) -> Iterator[Any]:
    """The batches of the job's partition behind the skipped ones, in the order of run seed, epoch and
    partition.

    Each batch is made when it is taken; skipped ones are not made.

    Args:
        job: The job.
        part: Selects this rank's rows of a batch; by default all.

    Raises:
        Stopped: In place of the next batch, when the job must stop: on every rank at the same batch.
    """
    loader = loader_settings(job)
    order = training_order(job.partition, loader, job.seed, job.unit.epoch)
    order = order[: unit_batches(job) * loader.batch_size]
    if job.begins_epoch:
        _begin(loader)
    loader = loader.of_phase(training=True, epoch=job.unit.epoch)
    made = job.batches(
        job.partition,
        order,
        loader,
        seed=rank_seed(job),
        skip=job.skip,
        part=part,
        epoch=job.unit.epoch,
        made=job.made,
        use=job.data_use,
        beat=job.beat,
    )
    with closing(job.data_use.timed(made)) as loaded:
        for done in range(job.skip, unit_batches(job)):
            if done > job.skip and job.stop(done):
                raise Stopped(done)
            batch = next(loaded)
            job.beat()
            job.watch(batch)
            yield batch


def rank_seed(job: UnitJob) -> int:
    """The seed of this rank for random draws in the unit: of its pass over the partition. Each rank has
    another one. Batch ``number`` of a pass begins with ``seed_of_batch((seed,), number)``."""
    rank, _ = ranks()
    return _seed(job.seed, job.unit.epoch, job.unit.partition, *([rank] if rank else []))


def validation_seed(job: UnitJob, number: int) -> int:
    """The seed of this rank's pass over validation partition, or loader, ``number`` in the job's epoch."""
    return _seed(job.seed, job.unit.epoch, number, ranks()[0], 1)


def _seed(*entropy: int) -> int:
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])


def natural_batches(job: UnitJob, partitions: Iterable[Partition], part: BatchPart = whole) -> Iterator[Any]:
    """The batches of ``partitions``, one after the other, each in its natural order: for validation.

    Arguments and errors are those of ``training_batches``; ``Stopped`` is raised only in a unit that
    evaluates.
    """
    loader, done = validation_settings(job).of_phase(training=False, epoch=job.unit.epoch), 0
    _begin(loader)
    for partition in partitions:
        order = np.arange(partition.rows)
        made = job.batches(
            partition,
            order,
            loader,
            seed=validation_seed(job, partition.index),
            part=part,
            epoch=job.unit.epoch,
            made=job.made,
            use=job.data_use,
            beat=job.beat,
        )
        for batch in job.data_use.timed(made):
            if done and job.unit.phase is Phase.EVALUATE and job.stop(done):
                raise Stopped(done)
            job.beat()
            job.watch(batch)
            yield batch
            done += 1


def validation_row(job: UnitJob, partitions: Sequence[Partition], number: int) -> Any:
    """One of the rows of ``partitions``, as validation has it before its batch is made."""
    starts = [0, *accumulate(partition.rows for partition in partitions)]
    at = bisect_right(starts, number) - 1
    loader = validation_settings(job).of_phase(training=False, epoch=job.unit.epoch)
    alone = replace(loader, batch_size=1, collate=itemgetter(0), transform=None, embed=None, workers=0)
    return next(job.batches(partitions[at], np.array([number - starts[at]]), alone))


def _begin(loader: LoaderSettings) -> None:
    """Draw from torch's generator as a ``DataLoader`` over the user's dataset does for each of its iterators:
    one fit by such loaders then draws the same as units."""
    if loader.dataset is not None:
        import torch

        torch.empty((), dtype=torch.int64).random_()


def training_rows(job: UnitJob) -> Iterator[int]:
    """The number of rows of each training batch of the job's partition, those to skip included."""
    return islice(_rows(job.partition, loader_settings(job).batch_size), unit_batches(job))


def validation_rows(job: UnitJob, partitions: Iterable[Partition]) -> Iterator[int]:
    """The number of rows of each batch of ``partitions`` for validation."""
    for partition in partitions:
        yield from _rows(partition, validation_settings(job).batch_size)


def _rows(partition: Partition, size: int) -> Iterator[int]:
    return (min(size, partition.rows - start) for start in range(0, partition.rows, size))


def rows_until(job: UnitJob, done: int) -> int:
    """How many rows the job has trained when ``done`` batches of its partition are trained."""
    return sum(islice(training_rows(job), job.skip, done))
