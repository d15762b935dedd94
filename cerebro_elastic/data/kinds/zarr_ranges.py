"""Shards of a Zarr store, whose arrays are columns: ranges of whole chunks of rows. A small file names each;
the chunks stay where they are, and are read by zarr, where that is installed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from cerebro_elastic.data.kinds.indices import write_index
from cerebro_elastic.data.kinds.kind import Facts, Wanted, is_wanted, suffix_of
from cerebro_elastic.data.kinds.values import as_column
from cerebro_elastic.data.ragged import Columns
from cerebro_elastic.errors import DataError, MissingExtra
from cerebro_elastic.system.files import CHUNK, Place, locate, read

RANGE = ".zarr-rows"
"""The suffix of a file that names a range of rows."""


def is_store(place: Place) -> bool:
    """Whether the name is that of a Zarr store."""
    return suffix_of(place.path.rstrip("/")) == ".zarr"


def write_ranges(store: Place, destination: Place, count: int, wanted: Wanted) -> list[Place]:
    """Write at most ``count`` files to ``destination``, each of which names a range of rows of ``store``."""
    arrays = _wanted(_arrays(store), wanted)
    lengths = {name: array.shape[0] if array.shape else 0 for name, array in arrays.items()}
    if len(set(lengths.values())) != 1 or not (rows := max(lengths.values())):
        raise DataError(
            f"the arrays of {store} have {lengths} rows: name those with equally many, at least one, by "
            "`columns`"
        )
    step = max((array.shards or array.chunks)[0] for array in arrays.values())
    blocks = -(-rows // step)
    row_bytes = sum(array.nbytes for array in arrays.values()) // rows
    shared = {
        "row_bytes": row_bytes,
        "store": store.fs.unstrip_protocol(store.path),
        "arrays": _described(arrays),
    }
    bounds = np.linspace(0, blocks, min(count, blocks) + 1).astype(int) * step
    return [
        write_index(destination, at, RANGE, {**shared, "start": start, "stop": min(stop, rows)})
        for at, (start, stop) in enumerate(pairwise(bounds.tolist()))
    ]


def look_at_range(place: Place, _wanted: Wanted) -> Facts:
    """The number of rows, and their bytes without compression."""
    index = json.loads(read(place))
    rows = index["stop"] - index["start"]
    return Facts(rows, elsewhere=rows * index["row_bytes"])


def read_range(place: Place, wanted: Wanted, most: int | None, _schema: object = None) -> Iterator[Columns]:
    """The arrays by name, a piece of the rows at a time. Raises ``DataError`` if the store has other arrays
    by now."""
    index = json.loads(read(place))
    arrays = _wanted(_arrays(locate(index["store"])), wanted)
    if _described(arrays) != {name: tuple(each) for name, each in index["arrays"].items()}:
        raise DataError(f"{index['store']} has other arrays than when the run was opened: start another run")
    stop = index["stop"] if most is None else min(index["stop"], index["start"] + most)
    for start in range(index["start"], stop, step := max(1, CHUNK // max(1, index["row_bytes"]))):
        yield {
            name: as_column(name, array[start : min(start + step, stop)]) for name, array in arrays.items()
        }


def _arrays(store: Place) -> dict[str, Any]:
    try:
        import zarr
    except ImportError as exc:
        raise MissingExtra(f"reading {store} needs zarr: pip install zarr") from exc
    opened = zarr.open(store.fs.unstrip_protocol(store.path), mode="r")
    if isinstance(opened, zarr.Array):
        return {"x": opened}
    return {name: item for name, item in sorted(opened.members(None)) if isinstance(item, zarr.Array)}


def _wanted(arrays: Mapping[str, Any], wanted: Wanted) -> dict[str, Any]:
    return {name: array for name, array in arrays.items() if is_wanted(name, wanted)}


def _described(arrays: Mapping[str, Any]) -> dict[str, tuple[list[int], str]]:
    return {name: (list(array.shape), np.dtype(array.dtype).str) for name, array in arrays.items()}
