"""The jobs of the worker processes of ``prepare_rows``: rows to chunks of columns, chunks to partitions."""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cerebro_elastic.data.column_checks import columns_of
from cerebro_elastic.data.manifest import Column, Split
from cerebro_elastic.data.partition import column_path, npy_header
from cerebro_elastic.data.row_function import RowFunction, Rows, make_rows
from cerebro_elastic.data.shared_jobs import JobRecord, record_of
from cerebro_elastic.errors import DataError
from cerebro_elastic.files import CHUNK, Chunk, Place, locate, open_read, translated, write
from cerebro_elastic.process import die_with_parent
from cerebro_elastic.registry import import_object


@dataclass(slots=True)
class _User:
    """The user's function, imported once in each process."""

    function: RowFunction | None = None
    root: str = ""


_user = _User()


def start(parent: int, reference: str, root: str) -> None:
    """Make this process one that prepares rows, and that ends with ``parent``."""
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends us
    _user.function, _user.root = import_object(reference, Path(root)), root


def make_chunk(folder: str, name: str, rows: Rows, labels: Sequence[str], seed: int) -> JobRecord:
    """Make ``rows``; the record has their columns, how many are good, and which are bad."""
    assert _user.function is not None
    rows_made = make_rows(_user.function, rows, labels, seed, _user.root)
    good = len(rows.numbers) - len(rows_made.bad)
    data = io.BytesIO()
    np.savez(
        data, allow_pickle=False, **{str(at): column for at, column in enumerate(rows_made.columns.values())}
    )
    record = {
        "good": good,
        "bad": [asdict(row) for row in rows_made.bad],
        "first": rows_made.first,
        "columns": [asdict(column) for column in columns_of(rows_made.columns)],
    }
    with translated(DataError, f"cannot write {name}"):
        place = locate(folder)
        write(place / f"{name}.npz", [data.getbuffer()])
        write(record_of(place, name), [json.dumps(record).encode()])
    return record


def join_chunks(
    url: str,
    folder: str,
    split: Split,
    index: int,
    columns: Sequence[Column],
    chunks: Sequence[tuple[str, int]],
) -> JobRecord:
    """Write a partition of ``chunks``, each by name and number of rows; the record is what the manifest says
    of it."""
    rows = sum(count for _, count in chunks)
    names = [name for name, count in chunks if count]
    files = []
    with translated(DataError, f"cannot write {split} partition {index} of {url}"):
        for at, column in enumerate(columns):
            path = column_path(split, index, column.name)
            kept = write(locate(url) / path, _Joined(locate(folder), names, at, column, rows))
            files.append({"path": path, "bytes": kept.bytes, "sha256": kept.sha256})
        record = {"rows": rows, "files": files}
        write(record_of(locate(folder), f"{split}-{index:05d}"), [json.dumps(record).encode()])
    return record


@dataclass(frozen=True)
class _Joined:
    """The ``.npy`` file of a column in several chunks, made anew each time it is asked for."""

    folder: Place
    chunks: Sequence[str]
    at: int
    column: Column
    rows: int

    def __iter__(self) -> Iterator[Chunk]:
        dtype = np.dtype(self.column.dtype)
        yield npy_header(dtype, (self.rows, *self.column.shape))
        for name in self.chunks:
            with _opened(self.folder / f"{name}.npz") as archive:
                yield np.ascontiguousarray(archive[str(self.at)], dtype=dtype).reshape(-1).view(np.uint8).data


@contextmanager
def _opened(place: Place) -> Iterator[Any]:
    with io.BufferedReader(open_read(place), CHUNK) as file, np.load(file, allow_pickle=False) as archive:
        yield archive
