"""The files of a partition's columns: where they lie, and how they are written a part at a time."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.manifest import SPLITS, Column, ColumnFile, PartitionFiles, Split
from cerebro_elastic.data.ragged import OFFSETS, Index, offsets_of
from cerebro_elastic.system.files import Chunk, Content, Place, write

Keep: TypeAlias = Callable[[Place, Iterable[Chunk]], Content]
"""Writes a file, or only returns its entry."""
Parts: TypeAlias = Callable[[], Iterable[NDArray[Any]]]
"""Makes an array's parts along its first axis, in order."""


@dataclass(frozen=True)
class ColumnData:
    """A column's entry in one partition."""

    column: Column
    rows: int
    parts: Parts
    """Its rows; of varying lengths the values of all rows."""
    lengths: Index | None = None
    """The lengths of its rows, if these vary."""

    def write(self, root: Place, split: Split, index: int, keep: Keep = write) -> list[ColumnFile]:
        """Write it below ``root``, for partition ``index`` of ``split``: one file, or two if lengths vary."""

        def kept(
            part: str, dtype: str, shape: tuple[int, ...], parts: Parts, length: int | None
        ) -> ColumnFile:
            # No column's name has an "@" in it there.
            name = f"{quote(self.column.name, safe='')}{'@' if part else ''}{part}"
            path = f"{split}/{index:05d}/{name}.npy"
            content = keep(root / path, _NpyFile(np.dtype(dtype), shape, parts))
            return ColumnFile(path, content.bytes, content.sha256, length)

        dtype, shape = self.column.dtype, self.column.shape
        if self.lengths is None:
            return [kept("", dtype, (self.rows, *shape), self.parts, None)]
        offsets = offsets_of(self.lengths)
        length = int(offsets[-1])
        return [
            kept("offsets", OFFSETS, offsets.shape, lambda: [offsets], None),
            kept("values", dtype, (length, *shape), self.parts, length),
        ]


@dataclass(frozen=True)
class _NpyFile:
    """The chunks of an array's file, made again at each iteration."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    parts: Parts

    def __iter__(self) -> Iterator[Chunk]:
        dtype = self.dtype.newbyteorder("<")
        yield npy_header(dtype, self.shape)
        for part in self.parts():
            yield np.ascontiguousarray(part, dtype=dtype).reshape(-1).view(np.uint8).data


def npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """The header of an array's file. Its size does not depend on the length of the first axis."""
    header = io.BytesIO()
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, described)
    return header.getvalue()


def by_split(
    partitions: Iterable[tuple[Split, PartitionFiles]],
) -> dict[Split, tuple[PartitionFiles, ...]]:
    """The partitions of each split."""
    splits: dict[Split, tuple[PartitionFiles, ...]] = dict.fromkeys(SPLITS, ())
    for split, files in partitions:
        splits[split] += (files,)
    return splits
