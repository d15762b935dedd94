"""A partition as a unit sees it: named columns of equal length, mapped from files and read-only. Rows are
checked when they are taken out."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.ragged import Ragged
from cerebro_elastic.data.reading.row_sums import Sums, row_sums
from cerebro_elastic.errors import DamagedData
from cerebro_elastic.system.cache_space import SUMS
from cerebro_elastic.system.words import counted, some_of

Array: TypeAlias = NDArray[np.generic]

_SHOWN = 5
"""The number of damaged rows that a message names."""


def forget_checks(folder: Path) -> None:
    """Remove the row sums of all columns of the partition in ``folder``: the next fetch, in any process of
    the host, checks each of its files. The cause of one damaged file may have damaged others."""
    for sums in folder.glob(f"*{SUMS}"):
        with suppress(OSError):
            sums.unlink()


@dataclass(frozen=True)
class Partition:
    """The rows of one partition, by column."""

    index: int
    """Its number in its split."""
    rows: int
    columns: Mapping[str, Array | Ragged]
    """Each column, of shape ``(rows, ...)`` or of varying lengths, in the manifest's order."""
    sums: Mapping[str, Sums] = field(default_factory=dict)
    """The row sums of each column, taken when its file was checked against the manifest; ``check_rows``
    compares. A column that is not from the cache has none, and is not compared."""
    name: str = "partition"
    """Its name in messages."""
    sent: Callable[[], tuple[Any, ...]] | None = field(default=None, compare=False)
    """The result of ``__reduce__``, if another process, such as one that makes batches, opens the partition
    by the names of its files. ``None``: its content is sent."""
    damage: list[DamagedData] = field(default_factory=list, compare=False)
    """The damage that was found, so that no code between here and the unit can hide it."""

    @cached_property
    def _mapped(self) -> Sequence[tuple[str, mmap.mmap, int]]:
        """Each column's or its sums' file, and where it must not end before."""
        columns = [(name, in_file(column)) for name, column in self.columns.items()]
        arrays: list[tuple[str, Any]] = [*columns, *self.sums.items()]
        return [
            (name, array.base, array.offset + array.nbytes) for name, array in arrays if _is_mapped(array)
        ]

    def check_sizes(self) -> None:
        """Raise ``DamagedData`` if a file has become shorter than its mapping: reading there would end the
        process (SIGBUS)."""
        for name, file, end in self._mapped:
            if file.size() < end:
                self._is_damaged(name, f"has {file.size()} bytes, and had at least {end}")

    def check_rows(
        self,
        name: str,
        index: NDArray[np.int64],
        taken: Array,
        sums_of: Callable[[Array], Sums] = row_sums,
    ) -> None:
        """Raise ``DamagedData`` unless ``taken``, a copy of the rows at ``index`` of a column, has the sums
        that they had when its file was checked."""
        if name not in self.sums:
            return
        expected, actual = np.asarray(self.sums[name]).take(index), sums_of(taken)
        if (
            actual.tobytes() != expected.tobytes()
        ):  # the fastest way to compare, and nearly always all that is done
            rows = index[actual != expected]
            changed = f"{counted(len(rows), 'row')} of a batch ({some_of(rows.tolist(), _SHOWN)})"
            self._is_damaged(name, f"has changed in {changed}")

    def _is_damaged(self, name: str, how: str) -> NoReturn:
        """Raise ``DamagedData``. The next fetch checks all files of the partition, and fetches those again
        that are damaged."""
        if (sums := getattr(self.sums.get(name), "filename", None)) is not None:
            forget_checks(Path(sums).parent)
        file = os.path.realpath(getattr(in_file(self.columns[name]), "filename", None) or "memory")
        raise DamagedData(
            f"{self.name}: the file {file} of column {name!r} {how} since it was checked: what was trained "
            "on it is not committed, and the file is checked again, and fetched again if it is damaged"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        if self.sent is not None:
            return self.sent()
        return Partition, (self.index, self.rows, self.columns, self.sums, self.name)


def unopened(index: int, rows: int, name: str, fetch: Callable[[], Partition]) -> Partition:
    """The partition that ``fetch`` returns; it is fetched when a column is first used."""
    fetched = cache(fetch)
    columns, sums = _Unopened(lambda: fetched().columns), _Unopened(lambda: fetched().sums)
    return Partition(index, rows, columns, sums, name, lambda: fetched().__reduce__())


def in_file(column: Array | Ragged) -> Array:
    """The array of a file: of a column of varying lengths the values."""
    return column.values if isinstance(column, Ragged) else column


class _Unopened(Mapping[str, Any]):
    def __init__(self, open_: Callable[[], Mapping[str, Any]]) -> None:
        self._open = open_

    def __getitem__(self, name: str) -> Any:
        return self._open()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._open())

    def __len__(self) -> int:
        return len(self._open())


def _is_mapped(array: object) -> TypeGuard[Any]:
    return isinstance(array, np.memmap) and isinstance(array.base, mmap.mmap)  # and not a slice of one


def sample_order(seed: int, epoch: int, partition: int, rows: int, shuffle: bool = True) -> NDArray[np.int64]:
    """The order in which ``epoch``'s pass over ``partition`` takes its ``rows``: a permutation.

    A function of the arguments alone, stable between releases (tests hold stored values); without
    ``shuffle``, and so for validation, the natural order. ``seed`` is the run's, not negative.
    """
    if not shuffle:
        return np.arange(rows, dtype=np.int64)
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch, partition])))
    return generator.permutation(rows)
