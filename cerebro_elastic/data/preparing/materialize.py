"""The rows of a torch ``Dataset`` as columns: each row is read once.

Its values go to files without a name, which are mapped: memory does not grow with the number of rows (text
apart).
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.ragged import Ragged, Varying, offsets_of
from cerebro_elastic.errors import DataError
from cerebro_elastic.registry import place_in

_OBJECTS = (Mapping, list, tuple, set)


def is_dataset(value: Any) -> bool:
    """Whether ``value`` is a torch ``Dataset``, an ``IterableDataset`` included. Imports nothing: a caller
    that has one has imported torch."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and isinstance(value, data.Dataset)


def materialized(dataset: Any, what: str) -> dict[str, NDArray[Any] | Varying]:
    """The dataset's rows, by column.

    The items of a tuple are the columns ``x`` and ``y`` or, of more, ``x0``, ``x1``, ...; a row that is one
    value is ``x``. A dict has its own names. Raises ``DataError`` for rows that no columns have, by number;
    ``what`` names the dataset.
    """
    columns: dict[str, _Spool] = {}
    names: list[str] = []
    for number, row in enumerate(_rows(dataset, what)):
        values = _named(row, f"row {number} of {what}")
        if not names:
            names = list(values)
            columns = {name: _Spool(f"column {name!r} of {what}") for name in names}
        if list(values) != names:
            raise DataError(
                f"row {number} of {what} has {', '.join(values)}, and row 0 has {', '.join(names)}: all rows "
                "must have the same values in the same order"
            )
        for name, value in values.items():
            columns[name].add(number, value)
    if not names:
        raise DataError(f"{what} has no rows")
    return {name: spool.column() for name, spool in columns.items()}


def _rows(dataset: Any, what: str) -> Iterator[Any]:
    by_number = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
    rows = map(dataset.__getitem__, range(len(dataset))) if by_number else iter(dataset)
    number = 0
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except (Exception, SystemExit) as exc:
            where = place_in(os.getcwd(), exc)
            raise DataError(
                f"row {number} of {what} failed at {where}: {type(exc).__name__}: {exc}; correct the "
                "dataset, or leave the row out there"
            ) from exc
        yield row
        number += 1


def _named(row: Any, what: str) -> dict[str, Any]:
    if isinstance(row, Mapping):
        named = {str(name): value for name, value in row.items()}
    elif isinstance(row, tuple | list):
        few = ("x", "y")[: len(row)] if len(row) <= 2 else None
        named = dict(zip(few or [f"x{at}" for at in range(len(row))], row, strict=True))
    else:
        named = {"x": row}
    for name, value in named.items():
        if value is None or isinstance(value, _OBJECTS):
            raise DataError(
                f"{what} has a {type(value).__name__} for {name!r}: a value is a number, an array, a tensor, "
                "text or bytes; use it without `materialize`, or return such values"
            )
    return named


@dataclass
class _Spool:
    """The values of a column, one behind the other in a file."""

    what: str
    file: IO[bytes] = field(default_factory=tempfile.TemporaryFile)
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    dtype: np.dtype[Any] | None = None
    encoded: bool = False

    def add(self, number: int, value: Any) -> None:
        if isinstance(value, str):
            self.texts.append(value)
            self._like(number, np.dtype(object), encoded=False)
            return
        encoded = isinstance(value, bytes | bytearray | memoryview)
        array = np.frombuffer(value, np.uint8) if encoded else np.asarray(value)
        if array.dtype == object:
            raise DataError(f"{self.what} has a {type(value).__name__} in row {number}, which is no array")
        self._like(number, array.dtype, encoded=encoded)
        self.shapes.append(array.shape)
        self.file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)

    def _like(self, number: int, dtype: np.dtype[Any], *, encoded: bool) -> None:
        if self.dtype is None:
            self.dtype, self.encoded = dtype, encoded
        if (self.dtype, self.encoded) != (dtype, encoded):
            kind, first = _kind(dtype, encoded), _kind(self.dtype, self.encoded)
            raise DataError(
                f"{self.what} has {kind} in row {number}, and {first} in row 0: all rows must have values of "
                "one type"
            )

    def column(self) -> NDArray[Any] | Varying:
        if self.texts:
            return np.array(self.texts, object)
        assert self.dtype is not None
        self.file.flush()
        if len(set(self.shapes)) == 1 and not self.encoded:
            return self._mapped((len(self.shapes), *self.shapes[0]))
        tails = {shape[1:] for shape in self.shapes if shape}
        if len(tails) != 1 or () in self.shapes:
            at = next(at for at, shape in enumerate(self.shapes) if shape != self.shapes[0])
            raise DataError(
                f"{self.what} has shape {list(self.shapes[at])} in row {at}, and {list(self.shapes[0])} in "
                "row 0: rows may differ in the length of their first axis only; for images of varying size "
                "return their bytes (PNG, JPEG), and `decode` them"
            )
        lengths = np.array([shape[0] for shape in self.shapes], np.int64)
        values = self._mapped((int(lengths.sum()), *tails.pop()))
        return Ragged(values, offsets_of(lengths), "bytes" if self.encoded else "ragged")

    def _mapped(self, shape: Sequence[int]) -> NDArray[Any]:
        """The file stays as long as it is mapped."""
        if 0 in shape:
            return np.empty(tuple(shape), self.dtype)
        assert self.dtype is not None
        mapped: NDArray[Any] = np.memmap(self.file, self.dtype, "r", shape=tuple(shape))
        return mapped


def _kind(dtype: np.dtype[Any], encoded: bool) -> str:
    if encoded:
        return "bytes"
    return "text" if dtype.kind == "O" else str(dtype)


def materialized_splits(returned: Any, what: str) -> tuple[Any, Any] | None:
    """Of a dataset, or of datasets by split: the columns for training, and those for validation if there are
    any. ``None`` for anything else."""
    if is_dataset(returned):
        return materialized(returned, what), None
    if isinstance(returned, Mapping) and is_dataset(returned.get("train")):
        valid = returned.get("valid")
        return (
            materialized(returned["train"], f"{what} for train"),
            None if valid is None else materialized(valid, f"{what} for valid"),
        )
    return None
