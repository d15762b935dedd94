"""What the columns of a batch are: tensors of torch, or numpy's arrays, as the recipe's task needs them.

Torch is imported for tensors only.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.errors import TaskError

Arrays: TypeAlias = Literal["torch", "numpy"]
"""The library whose arrays a task takes."""


class BatchArrays(Protocol):
    """Makes what a batch holds of numpy's arrays and of decoded values."""

    def of(self, array: NDArray[Any]) -> Any:
        """An array with the memory of ``array``."""

    def decoded(self, value: Any) -> Any:
        """What `decode` has returned. Raises ``TypeError`` or ``ValueError`` if it can be no array."""

    def stacked(self, rows: Sequence[Any]) -> Any:
        """Rows of one shape and dtype as one array."""


class NumpyArrays:
    """A batch of numpy's arrays."""

    def of(self, array: NDArray[Any]) -> NDArray[Any]:
        return array

    def decoded(self, value: Any) -> NDArray[Any]:
        array = np.array(value)
        if array.dtype.kind not in "biufc":
            raise TypeError(f"an array of {array.dtype}")
        return array

    def stacked(self, rows: Sequence[NDArray[Any]]) -> NDArray[Any]:
        return np.stack(rows)


def batch_arrays(arrays: Arrays) -> BatchArrays:
    """What makes the arrays of a batch."""
    if arrays == "numpy":
        return NumpyArrays()
    maker: BatchArrays = import_module("cerebro_elastic.data.reading.torch_tensors").TorchTensors()
    return maker


def decoded_arrays(arrays: BatchArrays, values: Sequence[Any], name: str) -> list[Any]:
    """The decoded values of a column. Raises ``TaskError`` for what can be no array."""
    return [_decoded(arrays, value, name) for value in values]


def _decoded(arrays: BatchArrays, value: Any, name: str) -> Any:
    try:
        return arrays.decoded(value)
    except (TypeError, ValueError) as exc:
        raise TaskError(
            f"`decode` made a {type(value).__name__} of a value of column {name!r}: it must make an array or "
            "a tensor; or give a `collate`"
        ) from exc


def stacked_arrays(arrays: BatchArrays, rows: Sequence[Any], name: str) -> Any:
    """The decoded values as one array. Raises ``TaskError`` unless they are of one shape and dtype."""
    kinds = {(tuple(row.shape), row.dtype) for row in rows}
    if len(kinds) > 1:
        shown = " and ".join(sorted(f"{dtype}{list(shape)}" for shape, dtype in kinds)[:2])
        raise TaskError(
            f"`decode` made {shown} of column {name!r} in one batch: make all of one shape and dtype there, "
            "or use `ragged: list`, or a `collate`"
        )
    return arrays.stacked(rows)
