"""The columns of a batch: rows are copied out of a partition into memory that torch has allocated, and the
copies are compared with the sums of their rows. What changes in a file later is no matter.

Numpy's alignment differs from run to run, and with it the last bits of some matrix products.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import default_collate

from cerebro_elastic.data.manifest import Column, Kind
from cerebro_elastic.data.mapped import Array
from cerebro_elastic.data.partition import Partition
from cerebro_elastic.data.ragged import Index, Ragged, fill_rows, inside, offsets_of
from cerebro_elastic.data.row_sums import Sums, padded_sums, ragged_sums
from cerebro_elastic.errors import RecipeError, TaskError, did_you_mean

Decode: TypeAlias = Callable[..., Any]
"""Makes an array or a tensor of an encoded value."""


def equal_rows(partition: Partition, name: str, index: Index) -> Tensor:
    """Rows of one shape, of shape ``(rows, ...)``."""
    column = np.asarray(partition.columns[name])
    rows = torch.empty((len(index), *column.shape[1:]), dtype=_torch_dtype(column))
    column.take(index, axis=0, out=rows.numpy(), mode="clip")  # "raise" would buffer; `batches` has checked
    partition.check_rows(name, index, rows.numpy())
    return rows


def padded_rows(partition: Partition, name: str, index: Index, width: int, pad_value: float) -> Tensor:
    """Sequences, of shape ``(rows, width, ...)``, each followed by ``pad_value``."""
    column = ragged(partition, name)
    rows = torch.zeros((len(index), width, *column.value_shape), dtype=_torch_dtype(column.values))
    lengths = column.lengths[index]
    fill_rows(rows.numpy(), np.asarray(column.values), column.offsets[index], lengths)
    partition.check_rows(name, index, rows.numpy(), padded_sums)
    if pad_value:
        rows[torch.from_numpy(~inside(lengths, width))] = pad_value
    return rows


def single_rows(partition: Partition, name: str, index: Index) -> tuple[Tensor, ...]:
    """Sequences, each a tensor of its own."""
    column = ragged(partition, name)
    lengths, values = column.lengths[index], np.asarray(column.values)
    rows = torch.empty((int(lengths.sum()), *column.value_shape), dtype=_torch_dtype(values))
    if len(rows):
        np.concatenate([values[a:b] for a, b in _bounds(column, index)], out=rows.numpy())
    value_bytes = rows.element_size() * rows[:1].numel() if len(rows) else 1
    partition.check_rows(
        name, index, rows.numpy(), partial(_sums_of_parts, offsets=offsets_of(lengths) * value_bytes)
    )
    return torch.split(rows, lengths.tolist())


def encoded_rows(partition: Partition, name: str, index: Index) -> list[bytes]:
    """Encoded values."""
    return [row.numpy().tobytes() for row in single_rows(partition, name, index)]


def decoded_rows(partition: Partition, name: str, index: Index, decode: Decode) -> list[Any]:
    """What ``decode`` makes of encoded values. Raises ``TaskError`` if it fails."""
    return [
        _decoded(value, decode, f"column {name!r} in row {row} of {partition.name}")
        for row, value in zip(index.tolist(), encoded_rows(partition, name, index), strict=True)
    ]


def _decoded(value: bytes, decode: Decode, where: str) -> Any:
    try:
        return decode(value)
    except Exception as exc:
        raise TaskError(
            f"`decode` failed on {where}: {type(exc).__name__}: {exc}; correct the function, or prepare the "
            "data without this row"
        ) from exc


def tensors(values: Sequence[Any], name: str) -> list[Tensor]:
    """The decoded values as tensors. Raises ``TaskError`` for what can be none."""
    return [_tensor(value, name) for value in values]


def _tensor(value: Any, name: str) -> Tensor:
    if isinstance(value, Tensor):
        return value
    try:
        return torch.from_numpy(np.array(value))  # a copy: what PIL gives may not be written to
    except (TypeError, ValueError) as exc:
        raise TaskError(
            f"`decode` made a {type(value).__name__} of a value of column {name!r}: it must make an array or "
            "a tensor; or give a `collate`"
        ) from exc


def stacked_values(rows: Sequence[Tensor], name: str) -> Tensor:
    """The decoded values as one tensor. Raises ``TaskError`` unless they are of one shape and dtype."""
    kinds = {(tuple(row.shape), row.dtype) for row in rows}
    if len(kinds) > 1:
        shown = " and ".join(sorted(f"{dtype}{list(shape)}" for shape, dtype in kinds)[:2])
        raise TaskError(
            f"`decode` made {shown} of column {name!r} in one batch: make all of one shape and dtype there, "
            "or use `ragged: list`, or a `collate`"
        )
    stacked: Tensor = default_collate(list(rows))  # in a worker process, in memory that its rank can read
    return stacked


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


def _torch_dtype(column: NDArray[Any]) -> torch.dtype:
    return torch.from_numpy(np.empty(0, column.dtype)).dtype
