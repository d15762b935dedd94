"""Which rows of a source become which partition of which split: one shuffle, by the seed alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.column_checks import check_split, rows_in
from cerebro_elastic.data.manifest import Split
from cerebro_elastic.data.sources import Columns, Source, read_source
from cerebro_elastic.errors import DataError

Index: TypeAlias = NDArray[np.int64]
HeldOut: TypeAlias = float | Columns
"""A share of the source's rows, from 0 (none) to below 1, or data of their own."""

_NAMES = {"train": "training", "valid": "validation", "test": "test"}


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """The rows of one partition."""

    split: Split
    """The partition's split."""
    index: int
    """The partition's number in its split."""
    columns: Columns
    """The source's columns."""
    rows: Index
    """The numbers of the partition's rows in ``columns``, in the partition's order."""


def read_splits(
    source: Source, valid: float | Source, test: float | Source
) -> tuple[Columns, HeldOut, HeldOut]:
    """The source's columns, and what is validation and test data."""
    train, own = read_source(source)
    if own is not None and not isinstance(valid, int | float):
        raise DataError(
            "the source brings validation data of its own, and `valid` names others: leave one out"
        )
    return train, _held_out("valid", valid) if own is None else own, _held_out("test", test)


def _held_out(key: str, named: float | Source) -> HeldOut:
    if isinstance(named, int | float):
        return float(named)
    try:
        return read_source(named)[0]
    except DataError as exc:
        raise DataError(f"`{key}` is neither a share of the rows, such as 20%, nor data: {exc}") from exc


def deal_rows(
    train: Columns, held_out: Mapping[Split, HeldOut], partitions: Mapping[Split, int], seed: int
) -> list[PartitionRows]:
    """Shuffle the rows of ``train``, hold out a share for each split in ``held_out`` that is one, and deal each
    split to its number of partitions, whose sizes differ by at most one. Data of their own keep their order.
    """
    order = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed))).permutation(rows_in(train))
    total, deals = len(order), []
    for split, data in held_out.items():
        if isinstance(data, float):
            count = _count(split, data, total)
            if count >= len(order):
                raise DataError(f"{split} takes the last of {total} rows: nothing is left for training")
            order, rows = order[: len(order) - count], order[len(order) - count :]
            columns = train
        else:
            rows, columns = np.arange(rows_in(data)), data
        if len(rows):
            deals += _dealt(split, columns, rows, partitions.get(split, 1))
    return _dealt("train", train, order, partitions["train"]) + deals


def _count(split: Split, share: float, rows: int) -> int:
    if not 0 <= share < 1:
        raise DataError(f"{split} is {share}: it must be a fraction from 0 (none) to below 1, or a source")
    count = round(share * rows)
    if share and not count:
        raise DataError(f"{split} is {share}, which of {rows} rows is not one: give more, or {split}: 0")
    return count


def _dealt(split: Split, columns: Columns, rows: Index, partitions: int) -> list[PartitionRows]:
    check_split(len(rows), partitions, _NAMES[split])
    return [
        PartitionRows(split, index, columns, part)
        for index, part in enumerate(np.array_split(rows, partitions))
    ]
