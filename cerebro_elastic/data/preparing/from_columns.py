"""Preparing a dataset: shuffle once, split into partitions, write each column as ``.npy``, manifest last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Event
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.column_checks import (
    check_columns,
    check_finite,
    check_lengths,
    columns_of,
)
from cerebro_elastic.data.manifest import (
    NAME,
    Column,
    ColumnFile,
    Manifest,
    PartitionFiles,
    Split,
    is_prepared,
    read_manifest,
)
from cerebro_elastic.data.preparing.column_files import ColumnData, Keep, by_split
from cerebro_elastic.data.preparing.defects import BadPictures, filled, write_report
from cerebro_elastic.data.preparing.selection import Selection
from cerebro_elastic.data.preparing.settings import PrepareSettings
from cerebro_elastic.data.preparing.split_rules import row_keys
from cerebro_elastic.data.preparing.splits import (
    HELD_OUT,
    HeldOut,
    PartitionRows,
    Sources,
    changed,
    deal_rows,
    own_splits,
    read_splits,
)
from cerebro_elastic.data.ragged import Columns, Index, Varying, as_ragged
from cerebro_elastic.errors import DataError, did_you_mean
from cerebro_elastic.generators import seeded
from cerebro_elastic.recipes.data import named_columns
from cerebro_elastic.system.files import CHUNK, Chunk, Place, digest, locate, translated, write

_WRITERS = 4
"""Partitions that are written at once; each has a few chunks in memory."""
_MOST_CLASSES = 1_000_000


def prepare_columns(
    sources: Sources,
    destination: str,
    settings: PrepareSettings,
    *,
    datasets: Mapping[str, int] = MappingProxyType({}),
    loader: Mapping[str, int | bool] = MappingProxyType({}),
) -> Manifest:
    """Write a dataset; the same input gives the same bytes.

    A destination that holds this very dataset is reused, one that holds another is refused.

    Args:
        sources: Its sources.
        destination: The dataset's URL.
        settings: Its settings. The shuffled rows are dealt to partitions whose sizes differ by at most one;
            bad rows are left out, counted, and sampled in ``report.json``.
        datasets: By split, the number of rows of a user's datasets, if the source has their row numbers.
        loader: The settings of batches from the user's loader.

    Raises:
        DataError: The input cannot be used.
        DiskFull: The disk has no space.
    """
    selection, labels, fill = Selection(settings), settings.labels, settings.fill
    with seeded(settings.seed):
        wanted = named_columns(dict(settings))
        if wanted is not None and settings.count_classes is not None:
            wanted |= {settings.count_classes}
        given, held_out = read_splits(sources, wanted)
    bad = BadPictures(settings.max_bad_rows)
    given = filled(bad.without(given, "train"), fill)
    held_out = changed(held_out, lambda columns, split: filled(bad.without(columns, split), fill, given))
    check_lengths(given, "the training data")
    keys = row_keys(settings, given, own_splits(held_out))
    vocabulary = selection.vocabulary(given, "the training data")

    def usable(columns: Columns, what: str, like: Columns | None = None) -> Columns:
        selected = selection.select(columns, vocabulary, what)
        check_columns(selected, what, like)
        check_finite(selected, labels, what, selection.feature_names(columns))
        return selected

    given, held_out = _all_ragged(given, held_out)
    train = usable(given, "the training data")
    held_out = changed(held_out, lambda columns, split: usable(columns, f"the {HELD_OUT[split]} data", train))
    numbers: dict[Split, int] = {"train": settings.partitions, "valid": settings.valid_partitions}
    dealt = deal_rows(train, held_out, numbers, settings.seed, keys, settings.folds or 1)
    described = Manifest(
        columns_of(train),
        (),
        (),
        settings.seed,
        vocabulary=vocabulary,
        features=selection.feature_names(given),
        datasets=dict(datasets),
        loader=dict(loader),
        class_counts={name: class_counts(name, dealt) for name in (settings.count_classes,) if name},
        sample_weight=settings.sample_weight or "",
        folds=settings.folds or 0,
    )
    manifest = _store(destination, described, dealt)
    if bad.rows:
        with translated(DataError, f"cannot write the dataset {destination}"):
            write_report(locate(destination), bad.rows)
    return manifest


def _store(url: str, described: Manifest, dealt: list[PartitionRows]) -> Manifest:
    """Write the dataset, ``described`` except for its partitions. Raises ``DataError`` if the URL has
    another."""
    with translated(DataError, f"cannot write the dataset {url}"):
        root = locate(url)
        exists = is_prepared(root)
        keep: Keep = (lambda _place, data: digest(data)) if exists else write
        writers, stop = ThreadPoolExecutor(_WRITERS), Event()

        def kept(partition: PartitionRows) -> tuple[Split, PartitionFiles]:
            return _kept(root, partition, lambda place, data: keep(place, _UntilStop(data, stop)))

        try:
            splits = by_split(writers.map(kept, dealt))
        finally:
            stop.set()  # at an error or Ctrl-C the others do not write to their ends
            writers.shutdown(cancel_futures=True)
        manifest = replace(described, train=splits["train"], valid=splits["valid"], test=splits["test"])
        if not exists:
            write(root / NAME, [manifest.to_json()])
    if exists and (other := read_manifest(url).digest) != manifest.digest:
        raise DataError(
            f"{url} holds another dataset (digest {other}, this one has {manifest.digest}): "
            "delete it or prepare into another place"
        )
    return manifest


class _Stopped(Exception):
    """The writing was stopped."""


@dataclass(frozen=True)
class _UntilStop:
    """Chunks that end with ``_Stopped`` once ``stop`` is set. They may be gone over again."""

    chunks: Iterable[Chunk]
    stop: Event

    def __iter__(self) -> Iterator[Chunk]:
        for chunk in self.chunks:
            if self.stop.is_set():
                raise _Stopped
            yield chunk


def _kept(root: Place, partition: PartitionRows, keep: Keep) -> tuple[Split, PartitionFiles]:
    files: list[ColumnFile] = []
    for column, values in zip(columns_of(partition.columns), partition.columns.values(), strict=True):
        files += _data(column, values, partition.rows).write(root, partition.split, partition.index, keep)
    return partition.split, PartitionFiles(len(partition.rows), tuple(files))


def _data(column: Column, values: NDArray[Any] | Varying, rows: Index) -> ColumnData:
    """The column's entry in a partition of these ``rows``."""
    if isinstance(values, Varying):
        return ColumnData(column, len(rows), lambda: values.pieces(rows), values.lengths[rows])
    step = max(1, CHUNK // (values[0].size * values.dtype.itemsize))

    def parts() -> Iterator[NDArray[Any]]:
        return (values[rows[start : start + step]] for start in range(0, len(rows), step))

    return ColumnData(column, len(rows), parts)


def _all_ragged(train: Columns, held_out: HeldOut) -> tuple[Columns, HeldOut]:
    """The data of all splits, each column ragged in all of them if it is in one: in the others all its rows
    may have one length by chance."""
    ragged = {
        name
        for columns in (train, *own_splits(held_out).values())
        for name, column in columns.items()
        if isinstance(column, Varying) and column.kind == "ragged"
    }

    def mended(columns: Columns, _split: Split = "train") -> Columns:
        return {name: as_ragged(column) if name in ragged else column for name, column in columns.items()}

    return mended(train), changed(held_out, mended)


def class_counts(name: str, dealt: Sequence[PartitionRows]) -> tuple[int, ...]:
    """The training rows of class 0, 1, ... in the column ``name`` of the partitions.

    Raises ``DataError`` if it does not have class numbers.
    """
    train = [partition for partition in dealt if partition.split == "train"]
    columns = train[0].columns
    if name not in columns:
        raise DataError(f"no column {name!r} has classes to count: {did_you_mean(name, columns)}")
    column = columns[name]
    if isinstance(column, Varying) or column.ndim != 1 or column.dtype.kind not in "biu":
        kind = column.kind if isinstance(column, Varying) else f"{column.dtype}{list(column.shape[1:])}"
        raise DataError(
            f"column {name!r} is {kind}: class weights need one class number for each row; make it codes by "
            f"`encode: [{name}]`"
        )
    if column.min() < 0 or column.max() >= _MOST_CLASSES:
        raise DataError(
            f"column {name!r} has values from {column.min()} to {column.max()}: classes are numbered from 0; "
            f"make them codes by `encode: [{name}]`"
        )
    rows = np.concatenate([partition.rows for partition in train])
    counts = np.bincount(column[rows].astype(np.int64), minlength=int(column.max()) + 1)
    return tuple(counts.tolist())
