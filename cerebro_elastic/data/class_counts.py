"""How many training rows each class has."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cerebro_elastic.data.ragged import Varying
from cerebro_elastic.data.splits import PartitionRows
from cerebro_elastic.errors import DataError, did_you_mean

_MOST_CLASSES = 1_000_000


def class_counts(name: str, dealt: Sequence[PartitionRows]) -> tuple[int, ...]:
    """The training rows of class 0, 1, ... in the column ``name`` of the partitions.

    Raises ``DataError`` if it does not have class numbers.
    """
    train = [partition for partition in dealt if partition.split == "train"]
    columns = train[0].columns
    if name not in columns:
        raise DataError(f"there is no column {name!r} whose classes to count: {did_you_mean(name, columns)}")
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
