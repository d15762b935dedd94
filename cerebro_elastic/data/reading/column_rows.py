"""The columns of a batch as arrays: rows are copied out of a partition into aligned memory, and the copies
are compared with the sums of their rows. What changes in a file later is no matter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.manifest import Column, Kind
from cerebro_elastic.data.ragged import Index, Ragged, fill_rows, inside, offsets_of
from cerebro_elastic.data.reading.mapped import Array
from cerebro_elastic.data.reading.partition import Partition
from cerebro_elastic.data.reading.row_sums import Sums, padded_sums, ragged_sums
from cerebro_elastic.errors import RecipeError, TaskError, did_you_mean
from cerebro_elastic.system.aligned import aligned_empty

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
    column = ragged(partition, name)
    rows = aligned_empty((len(index), width, *column.value_shape), np.asarray(column.values).dtype)
    rows[...] = 0
    lengths = column.lengths[index]
    fill_rows(rows, np.asarray(column.values), column.offsets[index], lengths)
    partition.check_rows(name, index, rows, padded_sums)
    if pad_value:
        rows[~inside(lengths, width)] = pad_value
    return rows


def single_rows(partition: Partition, name: str, index: Index) -> list[NDArray[Any]]:
    """Sequences, each an array of its own."""
    column = ragged(partition, name)
    lengths, values = column.lengths[index], np.asarray(column.values)
    rows = aligned_empty((int(lengths.sum()), *column.value_shape), values.dtype)
    if len(rows):
        np.concatenate([values[a:b] for a, b in _bounds(column, index)], out=rows)
    value_bytes = rows[:1].nbytes if len(rows) else 1
    partition.check_rows(
        name, index, rows, partial(_sums_of_parts, offsets=offsets_of(lengths) * value_bytes)
    )
    return np.split(rows, np.cumsum(lengths)[:-1]) if len(index) else []


def encoded_rows(partition: Partition, name: str, index: Index) -> list[bytes]:
    """Encoded values."""
    return [row.tobytes() for row in single_rows(partition, name, index)]


def decoded_rows(partition: Partition, name: str, index: Index, decode: RowFunction) -> list[Any]:
    """What ``decode`` makes of encoded values. Raises ``TaskError`` if it fails."""
    return _mapped(decode, "decode", encoded_rows(partition, name, index), partition, name, index)


def augmented_rows(
    partition: Partition, name: str, index: Index, values: Iterable[Any], augment: RowFunction
) -> list[Any]:
    """What ``augment`` makes of the decoded ``values``. Raises ``TaskError`` if it fails."""
    return _mapped(augment, "augment", values, partition, name, index)


def _mapped(
    function: RowFunction, key: str, values: Iterable[Any], partition: Partition, name: str, index: Index
) -> list[Any]:
    def of(value: Any, row: int) -> Any:
        try:
            return function(value)
        except Exception as exc:
            raise TaskError(
                f"`{key}` failed on column {name!r} in row {row} of {partition.name}: {type(exc).__name__}: "
                f"{exc}; correct the function, or prepare the data without this row"
            ) from exc

    return [of(value, row) for row, value in zip(index.tolist(), values, strict=True)]


def check_kinds(key: str, names: Iterable[str], known: Mapping[str, Column], kinds: Sequence[Kind]) -> None:
    """Raise ``RecipeError`` if the key names a column that is of none of the ``kinds``."""
    fitting = [name for name, column in known.items() if column.kind in kinds]
    for name in names:
        if name not in fitting:
            reason = f"has {known[name].kind}" if name in known else "is no column"
            raise RecipeError(
                f"{key} names {name!r}, which {reason}: it takes a column of {' or '.join(kinds)}; "
                f"{did_you_mean(name, fitting)}"
            )


def check_pad_values(pad_values: Mapping[str, float], known: Mapping[str, Column]) -> None:
    """Raise ``RecipeError`` for a value that its column's dtype has not."""
    for name, value in pad_values.items():
        dtype = np.dtype(known[name].dtype)
        if dtype.kind not in "fc" and not _has(dtype, value):
            raise RecipeError(f"pad_value of {name!r} is {value}: its dtype {dtype} has no such value")


def _has(dtype: np.dtype[Any], value: float) -> bool:
    try:
        return bool(dtype.type(value) == value)
    except OverflowError:
        return False


def ragged(partition: Partition, name: str) -> Ragged:
    """The column of varying lengths ``name``."""
    column = partition.columns[name]
    assert isinstance(column, Ragged), f"the rows of {name!r} have one shape"
    return column


def _bounds(column: Ragged, index: Index) -> Sequence[tuple[int, int]]:
    return list(zip(column.offsets[index].tolist(), column.offsets[index + 1].tolist(), strict=True))


def _sums_of_parts(values: Array, offsets: Index) -> Sums:
    return ragged_sums(values.reshape(-1).view(np.uint8), offsets)
