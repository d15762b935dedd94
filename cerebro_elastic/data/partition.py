"""A partition as a unit sees it: named columns of equal length, memory-mapped and read-only."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Partition:
    """``columns[name]`` has shape ``(rows, ...)``; the order of names is the manifest's.

    Pickling it, as for a data-loader worker, sends the paths of memory-mapped columns, not their
    content.
    """

    index: int
    rows: int
    columns: Mapping[str, NDArray[np.generic]]

    def __reduce__(self) -> tuple[Callable[..., Partition], tuple[Any, ...]]:
        columns = {name: _path_or_content(column) for name, column in self.columns.items()}
        return _reopen, (self.index, self.rows, columns)


def open_partition(index: int, rows: int, paths: Mapping[str, Path]) -> Partition:
    """The partition whose columns are these ``.npy`` files, memory-mapped."""
    return Partition(index, rows, {name: np.load(path, mmap_mode="r") for name, path in paths.items()})


def unopened(index: int, rows: int, fetch: Callable[[], Partition]) -> Partition:
    """The partition that ``fetch`` gives, which is not called before somebody asks for a column."""
    return Partition(index, rows, _Unopened(fetch))


class _Unopened(Mapping[str, NDArray[np.generic]]):
    def __init__(self, fetch: Callable[[], Partition]) -> None:
        self._fetch = fetch

    @cached_property
    def _columns(self) -> Mapping[str, NDArray[np.generic]]:
        return self._fetch().columns

    def __getitem__(self, name: str) -> NDArray[np.generic]:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def _path_or_content(column: NDArray[np.generic]) -> Path | NDArray[np.generic]:
    whole = isinstance(column, np.memmap) and isinstance(column.base, mmap.mmap)  # and not a slice of one
    return Path(column.filename) if whole else column  # type: ignore[attr-defined]


def _reopen(index: int, rows: int, columns: Mapping[str, Path | NDArray[np.generic]]) -> Partition:
    opened = {n: np.load(c, mmap_mode="r") if isinstance(c, Path) else c for n, c in columns.items()}
    return Partition(index, rows, opened)
