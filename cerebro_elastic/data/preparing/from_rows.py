"""``prepare`` with a user's row function, over processes and machines; it continues after a kill.

The rows are shuffled and dealt as in ``prepare``. Each partition's rows are made in chunks of a fixed number.
When all chunks are made, they are joined to partitions, and the manifest is written last. Until then the
chunks lie in the folder ``.preparing`` of the dataset, under a digest of the source, the function's module
and the settings: another try continues where this one was killed, one with another function starts from
scratch.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cerebro_elastic.data.column_checks import check_lengths
from cerebro_elastic.data.manifest import (
    NAME,
    SPLITS,
    Column,
    ColumnFile,
    Manifest,
    PartitionFiles,
    Split,
    is_prepared,
    read_manifest,
)
from cerebro_elastic.data.preparing.column_files import by_split
from cerebro_elastic.data.preparing.defects import (
    REPORT,
    BadRow,
    bad_rows_allowed,
    sample_of,
    write_report,
)
from cerebro_elastic.data.preparing.row_function import (
    Rows,
    check_not_empty,
    common,
    join_chunks,
    make_chunk,
    start,
)
from cerebro_elastic.data.preparing.settings import PrepareSettings
from cerebro_elastic.data.preparing.shared_jobs import Job, JobRecord, do_all, record_of
from cerebro_elastic.data.preparing.split_rules import row_keys
from cerebro_elastic.data.preparing.splits import PartitionRows, Sources, deal_rows, own_splits, read_splits
from cerebro_elastic.data.ragged import Index, Varying
from cerebro_elastic.errors import DataError
from cerebro_elastic.registry import import_object
from cerebro_elastic.system.files import Place, exists, locate, read, remove, translated, write
from cerebro_elastic.system.process import OF_TRAINING

_WORK = ".preparing"
_ROWS = 1024
"""Rows of a chunk."""


@dataclass(slots=True)
class RowProgress:
    """How far a preparation is, in rows."""

    total: int
    done: int = 0
    """Rows whose chunk is done."""
    known: int = 0
    """The rows of ``done`` that an earlier attempt or another machine has made."""
    bad: int = 0
    """Rows for which the function made nothing."""


@dataclass(slots=True)
class ChunkRecords:
    limit: float
    """How many rows may be bad; below 1, the share of them that may."""
    progress: RowProgress
    show: Callable[[RowProgress], None]
    """Called with the progress after each chunk."""
    chunks: dict[str, JobRecord] = field(default_factory=dict)

    def add(self, name: str, record: JobRecord, now: bool) -> None:
        """Take the record of a chunk, which was made ``now`` or before. Raises ``DataError`` if too many rows
        are bad."""
        rows = record["good"] + len(record["bad"])
        self.chunks[name] = record
        self.progress.done += rows
        self.progress.known += 0 if now else rows
        self.progress.bad += len(record["bad"])
        if self.progress.bad > (allowed := bad_rows_allowed(self.limit, self.progress.total)):
            raise DataError(
                f"{self.progress.bad} of {self.progress.done} rows are bad, {allowed} of all "
                f"{self.progress.total} may be:\n{sample_of(self.bad)}\ncorrect the row function or the "
                "source, or allow more with --bad"
            )
        self.show(self.progress)

    @property
    def bad(self) -> list[BadRow]:
        """All bad rows, in the order of the chunks' names."""
        return [BadRow(**row) for name in sorted(self.chunks) for row in self.chunks[name]["bad"]]

    def columns(self) -> Sequence[Column]:
        """The columns of all chunks. Raises ``DataError`` unless they agree."""
        kinds = [
            (record["first"], [Column(**{**c, "shape": tuple(c["shape"])}) for c in record["columns"]])
            for _, record in sorted(self.chunks.items())
            if record["good"]
        ]
        if not kinds:
            raise DataError("no row is good: see the row function and the source")
        first, columns = kinds[0][0], tuple(kinds[0][1])
        for row, others in kinds[1:]:
            columns = common(columns, first, others, row)
        check_not_empty(columns)
        return columns


def prepare_rows(
    sources: Sources,
    destination: str,
    settings: PrepareSettings,
    *,
    root: Path,
    show: Callable[[RowProgress], None] = lambda _progress: None,
) -> Manifest:
    """Write the dataset that the row function ``settings.rows`` makes of rows (see ``row_function.py``).

    The same sources, function and settings give the same bytes.

    Args:
        sources: The rows.
        destination: The dataset's URL.
        settings: How it is made. The seed is that of the function's random numbers, too. Bad rows are left
            out, counted, and sampled in ``report.json``.
        root: The folder that is searched for the function's module.
        show: Called with the progress after each chunk.

    Raises:
        DataError: The input cannot be used, or too many rows are bad.
        TaskError: The function does not exist.
    """
    assert settings.rows is not None
    seed, labels, function, share = settings.seed, settings.labels, settings.rows, settings.share
    train, held_out = read_splits(sources)
    own = own_splits(held_out)
    for columns in (train, *own.values()):
        check_lengths(columns, "the source's data")
    keys = row_keys(settings, train, own)
    numbers: dict[Split, int] = {"train": settings.partitions, "valid": settings.valid_partitions}
    dealt = deal_rows(train, held_out, numbers, seed, keys, settings.folds or 1)
    digest = _digest(dealt, import_object(function, root), seed, labels)
    with translated(DataError, f"cannot write the dataset {destination}"):
        place, folder = locate(destination), f"{destination.rstrip('/')}/{_WORK}/{digest[:16]}"
        if is_prepared(place):
            return _same(destination, place, digest)
    workers = settings.workers or len(os.sched_getaffinity(0))
    progress = RowProgress(sum(len(partition.rows) for partition in dealt))
    records = ChunkRecords(settings.max_bad_rows, progress, show)

    def chunk(name: str, partition: PartitionRows, numbers: Index) -> tuple[Any, ...]:
        return folder, name, _rows(partition, numbers), labels, seed

    makes = [
        Job(name, make_chunk, partial(chunk, name, partition, numbers))
        for partition in dealt
        for name, numbers in _chunks(partition)
    ]
    try:
        with _pool(workers, function, root) as pool:
            for name, record, now in do_all(makes, locate(folder), share, pool, workers):
                records.add(name, record, now)
            kinds = records.columns()
            joins = [_join(destination, folder, partition, kinds, records.chunks) for partition in dealt]
            parts = {name: record for name, record, _ in do_all(joins, locate(folder), share, pool, workers)}
            records_of = ((partition.split, parts[_name(partition)]) for partition in dealt)
            splits = by_split(
                (split, PartitionFiles(record["rows"], tuple(ColumnFile(**file) for file in record["files"])))
                for split, record in records_of
            )
            manifest = Manifest(
                tuple(kinds),
                splits["train"],
                splits["valid"],
                seed,
                splits["test"],
                folds=settings.folds or 0,
            )
            counted = {split: sum(part.rows for part in manifest.split(split)) for split in SPLITS}
            rows = {split: count for split, count in counted.items() if count or split != "test"}
            write_report(place, records.bad, digest=digest, rows=rows)
            write(place / NAME, [manifest.to_json()])
            if share.index == 0:
                remove(place / _WORK)
    except (DataError, FileNotFoundError):
        # Another machine may have finished, and removed the file that comes next.
        if share.of > 1 and exists(place / NAME):
            return _same(destination, place, digest)
        # Another try is another chance for rows that were out of reach.
        for name, record in records.chunks.items():
            if record["bad"]:
                remove(record_of(locate(folder), name))
        raise
    return manifest


def _chunks(partition: PartitionRows) -> Iterator[tuple[str, Index]]:
    """The name of each chunk of a partition, and the numbers of its rows in the source."""
    for number, begin in enumerate(range(0, len(partition.rows), _ROWS)):
        yield f"{_name(partition)}-{number:06d}", partition.rows[begin : begin + _ROWS]


def _rows(partition: PartitionRows, numbers: Index) -> Rows:
    columns = {
        name: column.take(numbers) if isinstance(column, Varying) else column[numbers]
        for name, column in partition.columns.items()
    }
    return Rows(partition.split, tuple(map(int, numbers)), columns)


def _join(
    url: str,
    folder: str,
    partition: PartitionRows,
    columns: Sequence[Column],
    records: Mapping[str, JobRecord],
) -> Job:
    chunks = [(name, records[name]["good"]) for name, _ in _chunks(partition)]
    if not any(good for _, good in chunks):
        raise DataError(
            f"no row of {partition.split} partition {partition.index} is good: use fewer partitions"
        )
    arguments = (url, folder, partition.split, partition.index, columns, chunks)
    return Job(_name(partition), join_chunks, lambda: arguments)


def _name(partition: PartitionRows) -> str:
    """The name of the job that joins the partition's chunks."""
    return f"{partition.split}-{partition.index:05d}"


def _same(url: str, place: Place, digest: str) -> Manifest:
    """The dataset that exists already. Raises ``DataError`` if it was made of something else."""
    report = json.loads(read(place / REPORT)) if exists(place / REPORT) else {}
    if report.get("digest") != digest:
        raise DataError(
            f"{url} holds another dataset, or one that was made of another source, function or seed: delete "
            "it, or prepare into another place"
        )
    return read_manifest(url)


def _digest(dealt: Sequence[PartitionRows], function: Any, seed: int, labels: Sequence[str]) -> str:
    """The digest of everything that the dataset depends on; the function counts by its module's code."""
    digest = hashlib.sha256(repr((_ROWS, seed, tuple(labels), function.__qualname__)).encode())
    digest.update(Path(inspect.getfile(function)).read_bytes())
    for columns in {id(partition.columns): partition.columns for partition in dealt}.values():
        for name, column in columns.items():
            if isinstance(column, Varying):
                digest.update(repr((name, column.dtype, column.kind)).encode() + column.lengths.tobytes())
                for values in column.pieces(np.arange(len(column))):
                    digest.update(np.ascontiguousarray(values).data)
                continue
            digest.update(repr((name, column.dtype, column.shape)).encode())
            digest.update(repr(column.tolist()).encode() if column.dtype == object else column.tobytes())
    for partition in dealt:
        digest.update(repr((partition.split, partition.index)).encode() + partition.rows.tobytes())
    return digest.hexdigest()


@contextmanager
def _pool(workers: int, function: str, root: Path) -> Iterator[ProcessPoolExecutor]:
    """Processes that have imported ``function``, ended at once if the block fails."""
    before = set(multiprocessing.active_children())
    added = {name: value for name, value in OF_TRAINING.items() if name not in os.environ}
    os.environ.update(added)  # spawned processes have this one's
    pool = ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=start,
        initargs=(os.getpid(), function, str(root)),
    )
    try:
        yield pool
        pool.shutdown()
    except BaseException as exc:  # Ctrl-C, too
        for process in set(multiprocessing.active_children()) - before:
            process.terminate()
        pool.shutdown(cancel_futures=True)
        if isinstance(exc, BrokenProcessPool):
            raise DataError(
                "a process that makes rows died without a word, perhaps for want of memory: use fewer "
                "--workers; the same command continues from here"
            ) from exc
        raise
    finally:
        for name in added:
            os.environ.pop(name, None)
