"""HDF5 as files of rows: each dataset is a column, with the path of its groups, and has as many rows. It is
read by h5py, where that is installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from cerebro_elastic.data.kinds.kind import Facts, Wanted, is_wanted
from cerebro_elastic.data.kinds.values import as_column
from cerebro_elastic.data.ragged import Columns, encoded
from cerebro_elastic.errors import DataError, MissingExtra
from cerebro_elastic.system.files import CHUNK, Place, open_buffered, size

HDF5 = (".h5", ".hdf5")
"""The suffixes of files of HDF5."""


def look_at_hdf5(place: Place, wanted: Wanted) -> Facts:
    """The number of rows, by the shapes of the datasets."""
    with _datasets(place, wanted) as datasets:
        return Facts(_rows(place, datasets))


def read_hdf5(place: Place, wanted: Wanted, most: int | None, _schema: object = None) -> Iterator[Columns]:
    """The datasets as columns; of text and of varying lengths as ``as_column`` has them."""
    with _datasets(place, wanted) as datasets:
        rows = min(_rows(place, datasets), most or np.iinfo(np.int64).max)
        row_bytes = sum(each.dtype.itemsize * int(np.prod(each.shape[1:])) for each in datasets.values())
        row_bytes = max(row_bytes, size(place) // max(1, rows))  # values of varying lengths lie elsewhere
        step = max(1, CHUNK // max(1, row_bytes))
        for start in range(0, rows, step):
            stop = min(start + step, rows)
            yield {name: _column(name, each, start, stop) for name, each in datasets.items()}


@contextmanager
def _datasets(place: Place, wanted: Wanted) -> Iterator[dict[str, Any]]:
    """The datasets that are used, by the path of each; all if a column that is named does not exist."""
    try:
        import h5py
    except ImportError as exc:
        raise MissingExtra(f"reading {place} needs h5py: pip install h5py") from exc
    with open_buffered(place) as file, h5py.File(file, "r") as opened:
        found: dict[str, Any] = {}

        def note(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset):
                found[name] = item

        opened.visititems(note)
        known = wanted is None or set(wanted) <= found.keys()
        yield {name: item for name, item in found.items() if not known or is_wanted(name, wanted)}


def _rows(place: Place, datasets: dict[str, Any]) -> int:
    rows = {name: each.shape[0] if each.shape else 1 for name, each in datasets.items()}
    if len(set(rows.values())) != 1:
        raise DataError(
            f"the datasets of {place} have {rows} rows: write them with equally many, or choose by `columns`"
        )
    return int(next(iter(rows.values())))


def _column(name: str, dataset: Any, start: int, stop: int) -> Any:
    """The rows as a column. Sequences of ``uint8`` are encoded values."""
    import h5py

    if h5py.check_string_dtype(dataset.dtype):
        return dataset.asstr()[start:stop]
    values = dataset[start:stop]
    if h5py.check_vlen_dtype(dataset.dtype) == np.uint8:
        return encoded([value.tobytes() for value in values], name)
    return as_column(name, values)
