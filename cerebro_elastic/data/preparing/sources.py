"""The sources of `prepare`: named columns, from files at any fsspec URL or a function.

Local ``.npy`` columns are memory-mapped, the rows of other files grow in temporary files, pictures and files
in tar archives stay where they are. The columns of remote ``.npy`` files and functions are in memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from tempfile import gettempdir
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.categories import coded
from cerebro_elastic.data.column_checks import rows_in
from cerebro_elastic.data.kinds.byte_ranges import FileRanges
from cerebro_elastic.data.kinds.kind import Wanted, is_wanted, suffix_of
from cerebro_elastic.data.kinds.listing import files_of, folder_columns, is_pictures, split_folders
from cerebro_elastic.data.kinds.pictures import read_images
from cerebro_elastic.data.kinds.registry import KINDS, kind_of
from cerebro_elastic.data.kinds.tables import TABLES, schema_of
from cerebro_elastic.data.kinds.values import as_column
from cerebro_elastic.data.manifest import Split
from cerebro_elastic.data.preparing.growing import GrowingColumn, is_dataset, materialized
from cerebro_elastic.data.ragged import Columns, Varying
from cerebro_elastic.errors import CerebroError, DataError
from cerebro_elastic.registry import place_in
from cerebro_elastic.system.files import CHUNK, Place, in_a_hurry, locate, redacted, translated

_IN_MEMORY = 32 * CHUNK
"""The number of bytes of columns that are kept in memory. Further bytes go to temporary files."""
_OWN: tuple[Split, ...] = ("valid", "test")
"""The splits that a source may bring beside its training rows."""

Function: TypeAlias = Callable[[], Mapping[str, Any]]
Source: TypeAlias = str | os.PathLike[str] | Function
"""A file, folder or glob; or a function that returns the columns, or the columns for ``train``, ``valid`` and
``test``. In place of columns it may return a torch ``Dataset``."""


def read_source(source: Source, wanted: Wanted = None) -> Mapping[Split, Columns]:
    """The source's columns for training, and those of its validation and test data if it brings its own.

    A folder or glob of ``.npy`` files has a column per file, one of other files the rows of all, in the order
    of their names. A folder of ``train``, ``valid`` and ``test`` has all three, one of ``train`` and
    ``valid`` both. Raises ``DataError`` if a ``wanted`` column cannot be read or understood.
    """
    if callable(source):
        return _from_function(source)
    name = os.fspath(source)
    with translated(DataError, f"cannot read {name}"):
        place = locate(name)
        with in_a_hurry():  # a person waits to hear that the storage is out of reach
            splits = split_folders(place)
        if splits is None:
            return {"train": _read_path(name, wanted)}
        return {split: _read_path(str(part), wanted) for split, part in splits.items()}


def _read_path(name: str, wanted: Wanted) -> Columns:
    """The columns of a file, a folder or a glob."""
    with translated(DataError, f"cannot read {name}"):
        place = locate(name)
        with in_a_hurry():
            if is_pictures(place):
                return read_images(place)
            files = files_of(name, place)
        suffixes = {suffix_of(file.path) for file in files}
        kind = kind_of(redacted(name), suffixes)
        if suffixes == {".npy"}:
            return _npy_columns(files)
        schema, in_folders = None, list[dict[str, int | str | None]]()
        if suffixes <= set(TABLES):
            looked = [(str(file), kind.look(file, wanted)) for file in files]
            schema, in_folders = schema_of(looked, wanted), folder_columns(place, files)

        def pieces() -> Iterator[tuple[Place, Columns]]:
            for at, file in enumerate(files):
                for piece in kind.read(file, wanted, None, schema):
                    yield file, {**piece, **_repeated(in_folders[at] if in_folders else {}, piece)}

        columns = _joined(pieces(), wanted)
        # Class names of WebDataset become numbers automatically.
        cls = columns.get("cls")
        words = [] if isinstance(cls, Varying | None) else cls.tolist()
        if ".tar" in suffixes and words and all(isinstance(word, str) for word in words):
            return {**columns, "cls": coded(words, f"{files[0]}: the .cls files")}
        return columns


def _repeated(values: Mapping[str, int | str | None], piece: Columns) -> Columns:
    """The same value in each row of the piece, unless it has the column itself."""
    return {
        name: np.full(rows_in(piece), value, np.int64 if isinstance(value, int) else object)
        for name, value in values.items()
        if name not in piece
    }


def _joined(pieces: Iterator[tuple[Place, Columns]], wanted: Wanted) -> Columns:
    """The rows of all pieces, one below the other; ``DataError`` if they differ in columns that are
    ``wanted``."""
    growing: dict[str, GrowingColumn | list[FileRanges]] = {}
    for number, (file, piece) in enumerate(pieces):
        if not number:
            in_memory = _IN_MEMORY // max(1, len(piece))
            growing = {
                name: [] if isinstance(values, FileRanges) else GrowingColumn(name, in_memory)
                for name, values in piece.items()
            }
        for name in sorted(growing.keys() ^ piece.keys()):
            if is_wanted(name, wanted):
                raise DataError(
                    f"column {name!r} is not in all files: see {file} and the one before it; complete them, "
                    "or leave the column out by `columns`"
                )
            growing.pop(name, None)
        for name, column in growing.items():
            column.append(piece[name])  # type: ignore[arg-type]  # of a name all are of one kind
    return {
        name: FileRanges.joined(column) if isinstance(column, list) else column.whole()
        for name, column in growing.items()
    }


def _npy_columns(files: Sequence[Place]) -> Columns:
    """A column for each file."""
    places: dict[str, Place] = {}
    for file in files:
        name = PurePosixPath(file.path).stem
        if (other := places.setdefault(name, file)) is not file:
            raise DataError(f"{other} and {file} are both column {name!r}: give the files of one folder")
    columns = dict[str, NDArray[Any] | Varying]()
    for name, file in places.items():
        with translated(DataError, f"cannot read {file}"):
            ((columns[name],),) = (piece.values() for piece in KINDS[".npy"].read(file, None, None, None))
    return columns


def _from_function(function: Function) -> Mapping[Split, Columns]:
    name = f"{function.__module__}:{getattr(function, '__qualname__', repr(function))}"
    try:
        result = function()
    except CerebroError:
        raise
    except (Exception, SystemExit) as exc:
        folder = os.path.dirname(getattr(getattr(function, "__code__", None), "co_filename", ""))
        raise DataError(
            f"{name} failed at {place_in(folder, exc)}: {type(exc).__name__}: {exc}; correct the function"
        ) from exc
    train = result.get("train") if isinstance(result, Mapping) else None
    if not (isinstance(train, Mapping) or is_dataset(train)):
        return {"train": _columns(result, name)}
    extra = sorted(set(result) - {"train", *_OWN})
    if extra and not is_dataset(train):
        raise DataError(
            f"{name} returned {', '.join(extra)} beside train: only train, valid and test are known"
        )
    given = {"train": train, **{split: own for split in _OWN if (own := result.get(split)) is not None}}
    return {split: _columns(columns, f"{name} for {split}") for split, columns in given.items()}


def _columns(returned: Any, what: str) -> Columns:
    """The result of the user's function, or the part ``what`` of it, as columns."""
    if is_dataset(returned):
        with translated(DataError, f"cannot write the rows of {what} to {gettempdir()} (TMPDIR)"):
            return materialized(returned, what)
    if not isinstance(returned, Mapping):
        raise DataError(
            f"{what} returned a {type(returned).__name__}: it must return {{column: array}}, or a torch "
            "Dataset"
        )
    return {name: as_column(name, column) for name, column in returned.items()}
