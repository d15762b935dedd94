"""The columns of a batch as arrays: rows are copied out of a partition into aligned memory, and the copies
are compared with the sums of their rows. Later changes of a file do not matter.

They are tensors of torch, or numpy's arrays, as the recipe's task needs them. Torch is imported for tensors
only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.ragged import Index, Ragged, fill_rows, inside, offsets_of
from cerebro_elastic.data.reading.partition import Partition
from cerebro_elastic.data.reading.row_sums import padded_sums, ragged_sums
from cerebro_elastic.errors import TaskError
from cerebro_elastic.system.aligned import aligned_empty

Arrays: TypeAlias = Literal["torch", "numpy"]
"""The library whose arrays a task takes."""
RowFunction: TypeAlias = Callable[..., Any]
"""Makes an array or a tensor of one value: of an encoded one (``decode``), or of that array (``augment``)."""


def equal_rows(partition: Partition, name: str, index: Index) -> NDArray[Any]:
    """Rows of one shape, of shape ``(rows, ...)``."""
    column = np.asarray(partition.columns[name])
    rows = aligned_empty((len(index), *column.shape[1:]), column.dtype)
    column.take(index, axis=0, out=rows, mode="clip")  # "raise" would buffer; `batches` has checked
    partition.check_rows(name, index, rows)
    return rows


def padded_rows(partition: Partition, name: str, index: Index, width: int, pad_value: float) -> NDArray[Any]:
    """Sequences, of shape ``(rows, width, ...)``, each followed by ``pad_value``."""
    column = _ragged(partition, name)
    rows = aligned_empty((len(index), width, *column.value_shape), np.asarray(column.values).dtype)
    rows[...] = 0
    lengths = column.lengths[index]
    fill_rows(rows, np.asarray(column.values), column.offsets[index], lengths)
    partition.check_rows(name, index, rows, padded_sums)
    if pad_value:
        rows[~inside(lengths, width)] = pad_value
    return rows


def single_rows(partition: Partition, name: str, index: Index) -> list[NDArray[Any]]:
    """Sequences, each a separate array."""
    column = _ragged(partition, name)
    lengths, values = column.lengths[index], np.asarray(column.values)
    rows = aligned_empty((int(lengths.sum()), *column.value_shape), values.dtype)
    if len(rows):
        starts, ends = column.offsets[index].tolist(), column.offsets[index + 1].tolist()
        np.concatenate([values[start:end] for start, end in zip(starts, ends, strict=True)], out=rows)
    bounds = offsets_of(lengths) * (rows[:1].nbytes if len(rows) else 1)
    partition.check_rows(
        name, index, rows, lambda taken: ragged_sums(taken.reshape(-1).view(np.uint8), bounds)
    )
    return np.split(rows, np.cumsum(lengths)[:-1]) if len(index) else []


def encoded_rows(partition: Partition, name: str, index: Index) -> list[bytes]:
    """Encoded values."""
    return [row.tobytes() for row in single_rows(partition, name, index)]


def called(
    function: RowFunction, key: str, values: Iterable[Any], partition: Partition, name: str, index: Index
) -> list[Any]:
    """The results of the user's ``function`` of this ``key`` for a column's ``values`` at ``index``. Raises
    ``TaskError`` if it fails."""

    def of(value: Any, row: int) -> Any:
        try:
            return function(value)
        except Exception as exc:
            raise TaskError(
                f"`{key}` failed on column {name!r} in row {row} of {partition.name}: {type(exc).__name__}: "
                f"{exc}; correct the function, or prepare the data without this row"
            ) from exc

    return [of(value, row) for row, value in zip(index.tolist(), values, strict=True)]


def array_of(arrays: Arrays, rows: NDArray[Any]) -> Any:
    """The rows as an array with the same memory."""
    if arrays == "numpy":
        return rows
    import torch

    return torch.from_numpy(rows)


def decoded_array(arrays: Arrays, value: Any, name: str) -> Any:
    """The array that `decode` has made of a value. Raises ``TaskError`` if it can be no array."""
    try:
        if arrays == "torch":
            import torch

            if isinstance(value, torch.Tensor):
                return value
            return torch.from_numpy(np.array(value))  # a copy: PIL's arrays may not be writable
        array = np.array(value)
        if array.dtype.kind not in "biufc":
            raise TypeError(f"an array of {array.dtype}")
        return array
    except (TypeError, ValueError) as exc:
        raise TaskError(
            f"`decode` made a {type(value).__name__} of a value of column {name!r}: it must make an array or "
            "a tensor; or give a `collate`"
        ) from exc


def stacked_arrays(arrays: Arrays, rows: Sequence[Any], name: str) -> Any:
    """The decoded values as one array. Raises ``TaskError`` unless they are of one shape and dtype."""
    kinds = {(tuple(row.shape), row.dtype) for row in rows}
    if len(kinds) > 1:
        shown = " and ".join(sorted(f"{dtype}{list(shape)}" for shape, dtype in kinds)[:2])
        raise TaskError(
            f"`decode` made {shown} of column {name!r} in one batch: make all of one shape and dtype there, "
            "or use `ragged: list`, or a `collate`"
        )
    if arrays == "numpy":
        return np.stack(rows)
    from torch.utils.data import default_collate

    return default_collate(list(rows))  # in a worker process, in memory its rank can read


def _ragged(partition: Partition, name: str) -> Ragged:
    """The column of varying lengths ``name``."""
    column = partition.columns[name]
    assert isinstance(column, Ragged), f"the rows of {name!r} have one shape"
    return column
