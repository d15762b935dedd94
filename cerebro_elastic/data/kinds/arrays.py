"""Arrays of numpy as files of rows: ``.npz``, whose arrays are columns, and ``.npy``, which is the column
``x``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from cerebro_elastic.data.kinds.kind import Facts, Wanted, suffix_of
from cerebro_elastic.data.ragged import Arrays, Columns
from cerebro_elastic.errors import DataError
from cerebro_elastic.system.files import Place, open_buffered


def look_at_arrays(place: Place, _wanted: Wanted) -> Facts:
    """The number of rows, by the headers of the arrays."""
    with open_buffered(place) as file:
        if suffix_of(str(place)) == ".npy":
            return Facts(_rows_in(file))
        with np.load(file, allow_pickle=False) as archive:
            rows = {}
            for name in archive.files:
                with archive.zip.open(f"{name}.npy") as array:
                    rows[name] = _rows_in(array)
    if len(set(rows.values())) != 1:
        raise DataError(f"the arrays of {place} have {rows} rows: write them with equally many")
    return Facts(rows.popitem()[1])


def read_arrays(place: Place, _wanted: Wanted, most: int | None, _schema: object = None) -> Iterator[Columns]:
    """The arrays by name."""
    columns = _loaded(place)
    yield columns if most is None else {name: array[:most] for name, array in columns.items()}


def _loaded(place: Place) -> Arrays:
    if place.local and suffix_of(str(place)) == ".npy":
        return {"x": np.load(place.path, mmap_mode="r", allow_pickle=False)}
    with open_buffered(place) as file:
        loaded = np.load(file, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"x": loaded}
        with loaded:
            return {name: loaded[name] for name in loaded.files}


def _rows_in(file: IO[Any]) -> int:
    """The rows of an array, by its header."""
    header = (
        np.lib.format.read_array_header_1_0
        if np.lib.format.read_magic(file) == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    shape, _, _ = header(file)
    return int(shape[0]) if shape else 1
