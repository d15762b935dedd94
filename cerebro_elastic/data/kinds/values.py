"""Columns of values as numpy, Python's lists and other libraries have them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.ragged import Varying, encoded, sequences
from cerebro_elastic.errors import DataError


def as_column(name: str, column: Any) -> NDArray[Any] | Varying:
    """A list of ``bytes``, a list of arrays of different lengths and a masked array are columns, too."""
    if isinstance(column, Varying):
        return column
    if isinstance(column, np.ma.MaskedArray):
        return _without_mask(column)
    is_object = isinstance(column, np.ndarray) and column.dtype == object and column.ndim == 1
    if not (is_object or isinstance(column, list | tuple)):
        return _array(name, column)
    if any(isinstance(value, bytes | bytearray | memoryview) for value in column):
        return encoded(column, name)
    if any(hasattr(value, "__len__") and not isinstance(value, str) for value in column):
        try:
            alike = len({np.shape(value) for value in column}) == 1
        except ValueError:  # nested, and ragged in itself
            alike = False
        if is_object or not alike:
            return sequences(column, name)
    if len({isinstance(value, str) for value in column}) > 1:  # numpy would make all of them text
        return np.array([None if _is_missing(value) else value for value in column], object)
    return np.asarray(column)


def _array(name: str, column: Any) -> NDArray[Any]:
    """The array that the user's object is, or can be made of."""
    try:
        array, why = np.asarray(column), ""
    except (RuntimeError, TypeError, ValueError) as error:
        # Of torch: it is sparse, nested or bfloat16, or has a gradient.
        array, why = np.empty((), object), f" ({error})"
    if array.ndim == 0 and array.dtype == object:
        kind = f"{type(column).__module__}.{type(column).__qualname__}"
        raise DataError(
            f"column {name!r} is a {kind}, which is no array{why}: give an array or a plain tensor, such as "
            "`x.toarray()`, `x.to_dense()`, `x.detach().float()`, or `list(x)`"
        )
    return array


def _without_mask(column: Any) -> NDArray[Any]:
    """Masked values are missing: NaN among numbers with fractions, none among others."""
    if not np.ma.is_masked(column):
        return np.asarray(column)
    if column.ndim == 1 and column.dtype.kind not in "fc":
        values = column.data.astype(object)
        values[np.ma.getmaskarray(column)] = None  # to `filled`, None is the default of the dtype
        return np.asarray(values)
    numbers = column if column.dtype.kind in "fc" else column.astype(np.float64)
    return np.asarray(numbers.filled(np.nan))


def _is_missing(value: Any) -> bool:
    """Whether the value is one of pandas' marks of a missing word: NaN, NaT or NA."""
    return type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
