"""The kinds of files whose rows become columns, for ``prepare`` and for shards: a row of ``KINDS``."""

from __future__ import annotations

from collections.abc import Mapping

from cerebro_elastic.data.kinds.arrays import look_at_arrays, read_arrays
from cerebro_elastic.data.kinds.hdf5 import HDF5, look_at_hdf5, read_hdf5
from cerebro_elastic.data.kinds.indices import rows_by_index
from cerebro_elastic.data.kinds.kind import Kind, suffix_of
from cerebro_elastic.data.kinds.packed import PACKED, look_at_packed, read_packed
from cerebro_elastic.data.kinds.picture_index import INDEX, look_at_index, read_index
from cerebro_elastic.data.kinds.tables import TABLES, look_at_table, read_table
from cerebro_elastic.data.kinds.tars import look_at_tar, read_tar
from cerebro_elastic.data.kinds.zarr_ranges import RANGE, look_at_range, read_range
from cerebro_elastic.errors import DataError

_ARRAYS = Kind(look_at_arrays, read_arrays)
KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(TABLES, Kind(look_at_table, read_table, lambda _place: None)),
    ".parquet": Kind(look_at_table, read_table),
    **dict.fromkeys(PACKED, Kind(look_at_packed, read_packed)),
    **dict.fromkeys(HDF5, Kind(look_at_hdf5, read_hdf5)),
    ".tar": Kind(look_at_tar, read_tar, rows_by_index),
    ".npz": _ARRAYS,
    ".npy": _ARRAYS,
}
"""By suffix."""
_INDICES: Mapping[str, Kind] = {
    INDEX: Kind(look_at_index, read_index),
    RANGE: Kind(look_at_range, read_range),
}
"""By suffix, of files that name where rows are."""

_COMPRESSED = (".gz", ".tgz", ".bz2", ".xz", ".zst", ".zip")
"""The suffixes of files that are refused as compressed."""


def kind_of(name: str, suffixes: set[str]) -> Kind:
    """The kind of the files of ``name``, by their ``suffixes``. Raises ``DataError``."""
    if compressed := sorted(suffixes.intersection(_COMPRESSED)):
        raise DataError(
            f"{name} has compressed files ({', '.join(compressed)}), whose rows cannot be read one by one: "
            "unpack them; an archive stays a .tar (`gunzip x.tar.gz`)"
        )
    if len(suffixes) == 1 and (kind := KINDS.get(next(iter(suffixes)))):
        return kind
    raise DataError(
        f"{name} has files of kind {', '.join(sorted(suffixes))}: choose one of {', '.join(sorted(KINDS))}, "
        "or as `source` a Python function 'module:name' that returns {column: array}"
    )


def kind_of_file(url: str) -> Kind:
    """The kind of one file, which may be an index of pictures or name rows of a Zarr store."""
    suffix = suffix_of(url)
    return _INDICES[suffix] if suffix in _INDICES else kind_of(url, {suffix})
