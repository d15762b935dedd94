"""Preparing a dataset: shuffle once, split into partitions, write each column as ``.npy``, manifest last."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.check import check_columns, check_labels, check_split, columns_of
from cerebro_elastic.data.manifest import NAME, ColumnFile, Manifest, PartitionFiles, Split, read_manifest
from cerebro_elastic.data.sources import Columns, Source, read_source
from cerebro_elastic.errors import DataError
from cerebro_elastic.files import CHUNK, Chunk, Content, Place, digest, exists, locate, translated, write

Index: TypeAlias = NDArray[np.int64]
Keep: TypeAlias = Callable[[Place, Iterable[Chunk]], Content]


def prepare(
    source: Source,
    destination: str,
    *,
    partitions: int,
    seed: int,
    valid: float | Source = 0.0,
    valid_partitions: int = 1,
    labels: tuple[str, ...] = (),
) -> Manifest:
    """Write ``source`` as a dataset to the URL ``destination``; the same input gives the same bytes.

    Rows are shuffled once with ``seed`` and dealt to ``partitions`` training partitions whose sizes
    differ by at most one. Validation data are the fraction ``valid`` of the shuffled rows, or a
    source of their own, whose order is kept; what a source function returns as ``valid`` goes
    before a fraction. ``labels`` are the columns that may not hold NaN (default: those named y,
    label, labels or target).

    A destination that holds this very dataset is reused, one that holds another is refused.
    Raises ``DataError`` for input that cannot be used, ``DiskFull`` if there is no space.
    """
    train, held_out = _read(source, valid)
    check_columns(train, "the training data")
    check_labels(train, labels)
    rows = _rows(train)
    order = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed))).permutation(rows)
    if held_out is None:
        order, valid_order = _hold_out(order, valid)
        held_out = train
    else:
        check_columns(held_out, "the validation data", like=train)
        check_labels(held_out, labels)
        valid_order = np.arange(_rows(held_out))
    check_split(len(order), partitions, "training")
    if len(valid_order):
        check_split(len(valid_order), valid_partitions, "validation")
    deals = _deal(order, partitions), _deal(valid_order, valid_partitions) if len(valid_order) else []
    return _store(destination, (train, deals[0]), (held_out, deals[1]), seed)


def _read(source: Source, valid: float | Source) -> tuple[Columns, Columns | None]:
    train, own = read_source(source)
    if isinstance(valid, int | float):
        return train, own
    if own is not None:
        raise DataError(
            "the source brings validation data of its own, and `valid` names others: leave one out"
        )
    return train, read_source(valid)[0]


def _hold_out(order: Index, valid: Any) -> tuple[Index, Index]:
    """Training and validation rows, ``valid`` being a fraction."""
    if not 0 <= valid < 1:
        raise DataError(f"valid is {valid}: it must be a fraction from 0 (none) to below 1, or a source")
    count = round(valid * len(order))
    if valid and not count:
        raise DataError(f"valid is {valid}, which of {len(order)} rows is not one: give more, or valid: 0")
    return order[: len(order) - count], order[len(order) - count :]


def _rows(columns: Columns) -> int:
    return len(next(iter(columns.values())))


def _deal(order: Index, partitions: int) -> list[Index]:
    return np.array_split(order, partitions)


def _store(
    url: str, train: tuple[Columns, list[Index]], valid: tuple[Columns, list[Index]], seed: int
) -> Manifest:
    """Write the dataset unless it is there; there it must be the same."""
    with translated(DataError, f"cannot write the dataset {url}"):
        root = locate(url)
        there = exists(root / NAME)
        keep: Keep = _only_hash if there else write
        manifest = Manifest(
            columns_of(train[0]),
            tuple(_keep_partition(root, "train", i, train[0], deal, keep) for i, deal in enumerate(train[1])),
            tuple(_keep_partition(root, "valid", i, valid[0], deal, keep) for i, deal in enumerate(valid[1])),
            seed,
        )
        if not there:
            write(root / NAME, [manifest.to_json()])
    if there and (other := read_manifest(url).digest) != manifest.digest:
        raise DataError(
            f"{url} holds another dataset (digest {other}, this one has {manifest.digest}): "
            "delete it or prepare into another place"
        )
    return manifest


def _only_hash(_: Place, data: Iterable[Chunk]) -> Content:
    return digest(data)


def _keep_partition(
    root: Place, split: Split, index: int, columns: Columns, deal: Index, keep: Keep
) -> PartitionFiles:
    files = []
    for name, column in columns.items():
        path = f"{split}/{index:05d}/{quote(name, safe='')}.npy"
        kept = keep(root / path, _Npy(column, deal))
        files.append(ColumnFile(path, kept.bytes, kept.sha256))
    return PartitionFiles(len(deal), tuple(files))


@dataclass(frozen=True)
class _Npy:
    """The ``.npy`` file of ``column[index]``, a chunk at a time, made anew each time it is asked for."""

    column: NDArray[Any]
    index: Index

    def __iter__(self) -> Iterator[Chunk]:
        dtype = self.column.dtype.newbyteorder("<")
        shape = (len(self.index), *self.column.shape[1:])
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            header, {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        )
        yield header.getvalue()
        step = max(1, CHUNK // (self.column[0].size * dtype.itemsize))
        for start in range(0, len(self.index), step):
            rows = np.ascontiguousarray(self.column[self.index[start : start + step]], dtype=dtype)
            yield rows.reshape(-1).view(np.uint8).data
