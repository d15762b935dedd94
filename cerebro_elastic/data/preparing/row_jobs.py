"""The jobs of the worker processes of ``prepare_rows``: rows to chunks of columns, chunks to partitions."""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.manifest import Column, ColumnFile, Split, column_path
from cerebro_elastic.data.preparing.npy_file import NpyFile
from cerebro_elastic.data.preparing.row_function import RowFunction, Rows, make_rows
from cerebro_elastic.data.preparing.shared_jobs import JobRecord, record_of
from cerebro_elastic.data.ragged import OFFSETS, Ragged, of_one_length, offsets_of
from cerebro_elastic.errors import DataError
from cerebro_elastic.registry import import_object
from cerebro_elastic.system.files import CHUNK, Chunk, Place, locate, open_read, translated, write
from cerebro_elastic.system.process import die_with_parent


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
    np.savez(data, allow_pickle=False, **dict(_arrays(rows_made.columns)))
    record = {
        "good": good,
        "bad": [asdict(row) for row in rows_made.bad],
        "first": rows_made.first,
        "columns": [asdict(column) for column in rows_made.kinds],
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
            joined = _Joined(locate(folder), names, at, column)
            for part, file, length in joined.files(rows):
                path = column_path(split, index, column.name, part)
                kept = write(locate(url) / path, file)
                files.append(asdict(ColumnFile(path, kept.bytes, kept.sha256, length)))
        record = {"rows": rows, "files": files}
        write(record_of(locate(folder), f"{split}-{index:05d}"), [json.dumps(record).encode()])
    return record


def _arrays(columns: Mapping[str, NDArray[Any] | Ragged]) -> Iterator[tuple[str, NDArray[Any]]]:
    """The arrays of a chunk's file, by name: one of a column, two of one whose rows vary."""
    for at, column in enumerate(columns.values()):
        if isinstance(column, Ragged):
            yield f"{at} offsets", column.offsets
            yield f"{at} values", column.values
        else:
            yield str(at), column


@dataclass(frozen=True)
class _Joined:
    """A column in several chunks."""

    folder: Place
    chunks: Sequence[str]
    at: int
    column: Column

    def files(self, rows: int) -> Iterator[tuple[str, Iterable[Chunk], int | None]]:
        """The column's files in a partition of ``rows`` rows: which part of the column each is, its chunks,
        and its length if the manifest has to say it."""
        if self.column.kind == "rows":
            yield "", self._file(rows, self._rows), None
            return
        offsets = offsets_of(np.concatenate([sequences.lengths for sequences in self._sequences()]))
        length = int(offsets[-1])
        yield "offsets", NpyFile(np.dtype(OFFSETS), offsets.shape, lambda: [offsets]), None
        yield "values", self._file(length, self._values), length

    def _file(self, length: int, parts: Callable[[], Iterator[NDArray[Any]]]) -> NpyFile:
        return NpyFile(np.dtype(self.column.dtype), (length, *self.column.shape), parts)

    def _rows(self) -> Iterator[NDArray[Any]]:
        for archive in self._archives():
            yield archive[str(self.at)]

    def _values(self) -> Iterator[NDArray[Any]]:
        return (sequences.values for sequences in self._sequences())

    def _sequences(self) -> Iterator[Ragged]:
        """The column in each chunk. The rows of some chunks may have one length by chance."""
        for archive in self._archives():
            if str(self.at) in archive:
                yield of_one_length(archive[str(self.at)])
            else:
                yield Ragged(archive[f"{self.at} values"], archive[f"{self.at} offsets"])

    def _archives(self) -> Iterator[Any]:
        for name in self.chunks:
            with _opened(self.folder / f"{name}.npz") as archive:
                yield archive


@contextmanager
def _opened(place: Place) -> Iterator[Any]:
    with io.BufferedReader(open_read(place), CHUNK) as file, np.load(file, allow_pickle=False) as archive:
        yield archive
