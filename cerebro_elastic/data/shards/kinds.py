"""The kinds of shards. A kind says how many rows a shard has, and makes columns of it: a row of ``KINDS``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from cerebro_elastic.data.preparing.arrow_tables import Wanted
from cerebro_elastic.data.preparing.tables import TABLES, look_at_table, read_tables, suffix_of
from cerebro_elastic.data.ragged import Columns
from cerebro_elastic.errors import DataError
from cerebro_elastic.system.files import Place


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
Read: TypeAlias = Callable[[Place, Wanted, int | None], Columns]
"""Reads the columns of a shard, or of no more than its first rows."""


@dataclass(frozen=True, slots=True)
class ShardKind:
    """How shards of one kind are read."""

    look: Look
    read: Read
    reads_all: bool
    """Whether to look at a shard takes reading all of it."""


def _look_at_table(place: Place, wanted: Wanted) -> ShardFacts:
    return ShardFacts(*look_at_table(place, wanted))


def _read_table(place: Place, wanted: Wanted, most: int | None) -> Columns:
    return read_tables([place], wanted, most=most)


_TABLE = ShardKind(_look_at_table, _read_table, reads_all=True)
KINDS: Mapping[str, ShardKind] = {
    **dict.fromkeys(TABLES, _TABLE),
    ".parquet": ShardKind(_look_at_table, _read_table, reads_all=False),
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
