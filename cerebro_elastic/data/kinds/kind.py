"""A kind of files: how its rows are counted, and how columns are made of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Protocol, TypeAlias

from cerebro_elastic.data.ragged import Columns
from cerebro_elastic.system.files import Place

Wanted: TypeAlias = Collection[str] | None
"""The columns that are used; ``None``: all. Unreadable values of other columns are left out."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of a file before its rows are read."""

    rows: int | None
    """``None``: they are counted when the file is fetched."""
    schema: Any = None
    """Of a table, its columns, of pyarrow."""
    lengths: Mapping[str, int] = field(default_factory=dict)
    """The length of the lists in a table's columns whose lists all have one length."""
    missing: Sequence[str] = ()
    """The columns that lack values, as far as that is known."""
    elsewhere: int = 0
    """The bytes of the files that this one names, if its rows are in these."""
    rows_about: int = 0
    """The estimated number of rows, if they were not counted."""


Look: TypeAlias = Callable[[Place, Wanted], Facts]


class Read(Protocol):
    """Reads the columns of a file, or of no more than its first rows."""

    def __call__(
        self, place: Place, wanted: Wanted, most: int | None, schema: Any = None, /
    ) -> Iterator[Columns]:
        """A piece of the rows at a time. Tables are read in the given schema, by default their own."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How files of one kind are read."""

    look: Look
    read: Read
    rows_beside: Callable[[Place], int | None] | None = None
    """Where a look has to read rows: their number without that, by a file beside it."""


def is_wanted(name: str, wanted: Wanted) -> bool:
    """Whether the column is used; of a structure ``a``, if one of its fields ``a.b`` is."""
    return wanted is None or name in wanted or any(other.startswith(f"{name}.") for other in wanted)


def suffix_of(path: str) -> str:
    """The file's kind. The part of a URL after ``?`` is for its server, and may be secret."""
    return PurePosixPath(path.partition("?")[0]).suffix.lower()
