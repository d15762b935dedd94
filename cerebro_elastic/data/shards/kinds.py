"""The kinds of shards. A kind says how many rows a shard has, and makes columns of it: a row of ``KINDS``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from cerebro_elastic.data.preparing.arrow_tables import Wanted
from cerebro_elastic.data.preparing.sources import as_column
from cerebro_elastic.data.preparing.tables import TABLES, look_at_table, suffix_of, table_pieces
from cerebro_elastic.data.preparing.tar_shards import count_samples, read_shards
from cerebro_elastic.data.ragged import Columns
from cerebro_elastic.data.shards.indices import rows_by_index
from cerebro_elastic.data.shards.packed import PACKED, count_packed, read_packed
from cerebro_elastic.errors import DataError
from cerebro_elastic.system.files import Place, open_buffered


@dataclass(frozen=True, slots=True)
class ShardFacts:
    """What is known of a shard before its rows are read."""

    rows: int
    schema: Any = None
    """Of a table, its columns, of pyarrow."""
    lengths: Mapping[str, int] = field(default_factory=dict)
    """Of a table's columns of lists, the length of those whose lists have all one length."""
    missing: Sequence[str] = ()
    """The columns in which a row has no value, as far as that is known."""


Look: TypeAlias = Callable[[Place, Wanted], ShardFacts]
Read: TypeAlias = Callable[[Place, Wanted, int | None], Iterator[Columns]]
"""Reads the columns of a shard, or of no more than its first rows, a piece of the rows at a time."""


@dataclass(frozen=True, slots=True)
class ShardKind:
    """How shards of one kind are read."""

    look: Look
    read: Read


def _look_at_table(place: Place, wanted: Wanted) -> ShardFacts:
    return ShardFacts(*look_at_table(place, wanted))


def _look_at_tar(place: Place, _wanted: Wanted) -> ShardFacts:
    known = rows_by_index(place)
    return ShardFacts(count_samples(place) if known is None else known)


def _read_tar(place: Place, _wanted: Wanted, most: int | None) -> Iterator[Columns]:
    yield read_shards([place], as_column, number_words=False, most=most)


def _look_at_arrays(place: Place, _wanted: Wanted) -> ShardFacts:
    with open_buffered(place) as file, np.load(file, allow_pickle=False) as archive:
        rows = {name: _rows_in(archive.zip, f"{name}.npy") for name in archive.files}
    if len(set(rows.values())) != 1:
        raise DataError(f"the arrays of {place} have {rows} rows: write them with equally many")
    return ShardFacts(rows.popitem()[1])


def _rows_in(archive: Any, name: str) -> int:
    """The rows of an array in a ``.npz`` file, by its header."""
    with archive.open(name) as file:
        header = (
            np.lib.format.read_array_header_1_0
            if np.lib.format.read_magic(file) == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, _, _ = header(file)
    return int(shape[0]) if shape else 1


def _read_arrays(place: Place, _wanted: Wanted, most: int | None) -> Iterator[Columns]:
    with open_buffered(place) as file, np.load(file, allow_pickle=False) as archive:
        yield {name: archive[name][:most] for name in archive.files}


def _look_at_packed(place: Place, _wanted: Wanted) -> ShardFacts:
    return ShardFacts(count_packed(place))


def _read_packed(place: Place, wanted: Wanted, most: int | None) -> Iterator[Columns]:
    yield read_packed(place, wanted, most)


_PACKED = ShardKind(_look_at_packed, _read_packed)
_TABLE = ShardKind(_look_at_table, table_pieces)
KINDS: Mapping[str, ShardKind] = {
    **dict.fromkeys(TABLES, _TABLE),
    **dict.fromkeys(PACKED, _PACKED),
    ".tar": ShardKind(_look_at_tar, _read_tar),
    ".npz": ShardKind(_look_at_arrays, _read_arrays),
}
"""By suffix."""


def kind_of(url: str) -> ShardKind:
    """The kind of the shards at ``url``, by their suffix. Raises ``DataError``."""
    if (kind := KINDS.get(suffix_of(url))) is None:
        raise DataError(
            f"{url} is no shard of a known kind: give files of one of {', '.join(sorted(KINDS))}; or name "
            "them as `source`, which reads more kinds and writes their rows as partitions"
        )
    return kind
