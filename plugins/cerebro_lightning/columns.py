"""Data from Python for ``CerebroTrainer.fit`` (arrays, tuples, tables), as named columns."""

from __future__ import annotations

import hashlib
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from cerebro_elastic.extending.data import Arrays, as_column, check_given
from cerebro_elastic.extending.errors import DataError

FORMS = (
    "give columns by name ({'x': x, 'y': y}), a tuple of arrays (x, y), a DataFrame, a torch Dataset or "
    "DataLoader, a path or URL, or a function that returns columns"
)
"""The forms in which data may be given, for messages."""
_MISSING = ("NAType", "NaTType")
"""Types of pandas whose only value is the missing one."""


class Table(Protocol):
    """A DataFrame of pandas or polars, a table of pyarrow: columns, and one by its name."""

    @property
    def columns(self) -> Any: ...
    def __getitem__(self, name: Any, /) -> Any: ...


def columns_of(data: Any, what: str, wanted: Iterable[str] | None = None) -> Arrays:
    """The arrays in ``data``, by name: of a mapping or a table (pandas, polars, pyarrow) its own names, of a
    tuple ``x, y``, or ``x0, x1, x2`` and so on. Only those ``wanted``, if any are named.

    Raises ``DataError`` for data without such columns; ``what`` names the argument.
    """
    named = _named(data, what)
    if twice := [name for name, count in Counter(name for name, _ in named).items() if count > 1]:
        raise DataError(f"{what} has the column {twice[0]!r} more than once: rename one of them")
    # The selection reports missing names.
    keep = {name for name, _ in named} if wanted is None else set(wanted)
    return {name: _array(name, column, what) for name, column in named if name in keep}


def write_columns(columns: Arrays, folder: Path) -> Path:
    """The columns as a ``.npz`` in ``folder``, named by their content: the same data, the same file."""
    digest = hashlib.sha256()
    for name, column in columns.items():
        digest.update(f"{name} {column.dtype} {column.shape} ".encode())
        digest.update(np.ascontiguousarray(column).data)
    path = (folder / f"{digest.hexdigest()[:16]}.npz").resolve()
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp.npz")
        with zipfile.ZipFile(temporary, "w") as archive:  # numpy's savez takes no column of the name `file`
            for name, column in columns.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, column, allow_pickle=False)
        temporary.replace(path)
    return path


def _named(data: Any, what: str) -> list[tuple[str, Any]]:
    if isinstance(data, Mapping):
        return [(str(name), column) for name, column in data.items()]
    if isinstance(data, tuple) and data:
        names = ("x", "y") if len(data) <= 2 else [f"x{i}" for i in range(len(data))]
        return list(zip(names, data, strict=False))
    if (columns := _columns_of_table(data)) is not None:
        return columns
    raise DataError(f"{what} is a {type(data).__name__}: {FORMS}")


def _columns_of_table(data: Any) -> list[tuple[str, Any]] | None:
    """The columns of a table. It is recognised by its methods, so that no package needs to be installed."""
    names = getattr(data, "column_names", None)  # pyarrow, datasets
    names = getattr(data, "columns", None) if names is None else names
    if names is None or isinstance(data, type) or not hasattr(data, "__getitem__"):
        return None
    return [
        (str(name), data.iloc[:, i] if hasattr(data, "iloc") else data[name]) for i, name in enumerate(names)
    ]


def _array(name: str, column: Any, what: str) -> NDArray[Any]:
    if isinstance(column, np.ma.MaskedArray):
        column = as_column(name, column)
    try:
        array = column.numpy(force=True) if isinstance(column, torch.Tensor) else np.asarray(column)
    except (TypeError, ValueError) as exc:
        raise DataError(f"column {name!r} of {what} is a {type(column).__name__}, no array: {exc}") from exc
    return _without_objects(name, array, what) if array.dtype.kind == "O" else array


def _without_objects(name: str, array: NDArray[Any], what: str) -> NDArray[Any]:
    """Texts, numbers or vectors in an array of Python's objects, as an array of numpy's own types."""
    values = [None if _is_missing(value) else value for value in array.reshape(-1).tolist()]
    if not any(isinstance(value, str) for value in values):  # a missing number is NaN, as in a file
        values = [float("nan") if value is None else value for value in values]
    check_given(name, values, what)
    try:
        converted = np.array(values)
    except ValueError:
        converted = array
    kinds = {type(value) for value in values}
    if converted.dtype.kind == "O" or (converted.dtype.kind in "US" and len(kinds) > 1):
        shown = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise DataError(
            f"column {name!r} of {what} has values of type {shown}, and not of one shape: make it numbers or "
            "text, or leave it out by `columns`"
        )
    return converted.reshape(*array.shape, *converted.shape[1:])


def _is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ in _MISSING or (isinstance(value, float) and value != value)
