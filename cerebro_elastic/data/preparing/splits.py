"""Deals a source's rows to the partitions of each split: one shuffle, by the seed alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np

from cerebro_elastic.data.column_checks import rows_in
from cerebro_elastic.data.kinds.kind import Wanted
from cerebro_elastic.data.manifest import Split
from cerebro_elastic.data.preparing.sources import Source, read_source
from cerebro_elastic.data.preparing.split_rules import RowKeys
from cerebro_elastic.data.ragged import Columns, Index
from cerebro_elastic.errors import DataError
from cerebro_elastic.system.words import counted

HeldOut: TypeAlias = Mapping[Split, float | Columns]
"""By split beside the training rows: a share of the source's rows, from 0 (none) to below 1, or data of their
own."""

HELD_OUT: Mapping[Split, str] = {"test": "test", "valid": "validation"}
"""The splits besides the training rows, and their names in messages. The test set comes first: it has the
same rows whatever is held out for validation."""

_NAMES: Mapping[Split, str] = {"train": "training", **HELD_OUT}
KEYS: Mapping[Split, str] = {"train": "partitions", "valid": "valid_partitions"}
"""The keys of a recipe that say how many partitions a split has."""


class Sources(NamedTuple):
    """The sources of a dataset's splits."""

    train: Source
    valid: float | Source = 0.0
    """Validation data: a share of the shuffled rows, or a separate source in its order. Validation data that
    a source function returns override a share."""
    test: float | Source = 0.0
    """The same of the test set."""


@dataclass(frozen=True, slots=True)
class PartitionRows:
    split: Split
    index: int
    """The partition's number in its split."""
    columns: Columns
    rows: Index
    """The numbers of the partition's rows in ``columns``, in the partition's order."""


def read_splits(sources: Sources, wanted: Wanted = None) -> tuple[Columns, HeldOut]:
    """The columns of the rows, and the validation data. Unreadable values of columns that are not ``wanted``
    are left out."""
    splits = read_source(sources.train, wanted)
    named: Mapping[Split, float | Source] = {"test": sources.test, "valid": sources.valid}
    held_out = {split: _held_out(split, named[split], splits.get(split), wanted) for split in HELD_OUT}
    return splits["train"], held_out


def _held_out(key: Split, named: float | Source, own: Columns | None, wanted: Wanted) -> float | Columns:
    if own is not None:
        # By default `valid` is a share, which the source's own data override; `test` is given or absent.
        if not isinstance(named, int | float) or (named and key == "test"):
            raise DataError(
                f"the source brings its own {HELD_OUT[key]} data, and `{key}` names others: leave one out"
            )
        return own
    if isinstance(named, int | float):
        return float(named)
    try:
        return read_source(named, wanted)["train"]
    except DataError as exc:
        raise DataError(f"`{key}` is neither a share of the rows, such as 20%, nor data: {exc}") from exc


def own_splits(held_out: HeldOut) -> dict[str, Columns]:
    """The splits with separate data, by the name for messages."""
    return {HELD_OUT[split]: data for split, data in held_out.items() if not isinstance(data, float)}


def changed(held_out: HeldOut, change: Callable[[Columns, Split], Columns]) -> HeldOut:
    """The shares as they are, and the splits with separate data after ``change``."""
    return {
        split: data if isinstance(data, float) else change(data, split) for split, data in held_out.items()
    }


def deal_rows(
    train: Columns,
    held_out: HeldOut,
    partitions: Mapping[Split, int],
    seed: int,
    keys: RowKeys = RowKeys(),  # noqa: B008  # frozen
    folds: int = 1,
) -> list[PartitionRows]:
    """Shuffle the rows of ``train``, hold some out for the other splits, and deal each split to partitions.

    Args:
        train: The source's columns.
        held_out: The splits to hold out. Separate data keep their order, if they become one partition.
        partitions: By split, the number of partitions, whose sizes differ by at most one; by default 1.
        seed: The seed of the shuffle.
        keys: The columns by which the rows of ``train`` are held out. Training rows of a group may be in
            several partitions, and of one fold.
        folds: How many folds the training partitions make, in their order.
    """
    order = _shuffled(rows_in(train), seed)
    total, dealt = len(order), []
    for split, data in held_out.items():
        if isinstance(data, float):
            count = _count(split, data, total)
            if count >= len(order):
                raise DataError(f"{split} takes the last of {total} rows: nothing is left for training")
            held = keys.held_out(order, count, split)
            order, rows = order[~held], order[held]
            columns = train
        else:
            several = partitions.get(split, 1) > 1  # each must be like the whole
            rows, columns = _shuffled(rows_in(data), seed) if several else np.arange(rows_in(data)), data
        if len(rows):
            dealt += _deal(split, columns, rows, partitions.get(split, 1))
    of_fold = keys.folds(order, folds) if folds > 1 else np.zeros(len(order), np.int64)
    size = partitions["train"] // folds
    return [
        replace(each, index=fold * size + each.index)
        for fold in range(folds)
        for each in _deal("train", train, order[of_fold == fold], size)
    ] + dealt


def _shuffled(rows: int, seed: int) -> Index:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed))).permutation(rows)


def _count(split: Split, share: float, rows: int) -> int:
    if not 0 <= share < 1:
        raise DataError(f"{split} is {share}: it must be a fraction from 0 (none) to below 1, or a source")
    count = round(share * rows)
    if share and not count:
        raise DataError(f"{split} is {share}, which of {rows} rows is not one: give more, or {split}: 0")
    return count


def _deal(split: Split, columns: Columns, rows: Index, partitions: int) -> list[PartitionRows]:
    what = _NAMES[split]
    if partitions < 1:
        raise DataError(f"{partitions} {what} partitions: there must be at least 1")
    if len(rows) < partitions:
        raise DataError(
            f"{counted(len(rows), f'{what} row')} for {counted(partitions, 'partition')}: each needs at "
            f"least one; use at most {len(rows)} (`{KEYS[split]}`), or more data"
        )
    return [
        PartitionRows(split, index, columns, part)
        for index, part in enumerate(np.array_split(rows, partitions))
    ]
