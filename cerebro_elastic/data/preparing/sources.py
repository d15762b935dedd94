"""What `prepare` reads: named columns, from files at any fsspec URL or a function.

Local ``.npy`` columns are memory-mapped, tables grow in temporary files, pictures and files in tar archives
stay where they are. The columns of ``.npz`` files, remote ``.npy`` files and functions are in memory.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from tempfile import gettempdir
from typing import Any, TypeAlias
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.manifest import Split
from cerebro_elastic.data.preparing.arrow_tables import Wanted
from cerebro_elastic.data.preparing.encoded_files import has_images, read_images
from cerebro_elastic.data.preparing.growing import is_dataset, materialized
from cerebro_elastic.data.preparing.tables import TABLES, read_tables, suffix_of
from cerebro_elastic.data.preparing.tar_shards import read_shards
from cerebro_elastic.data.ragged import Columns, Varying, encoded, sequences
from cerebro_elastic.errors import CerebroError, DataError
from cerebro_elastic.registry import place_in
from cerebro_elastic.system.files import (
    Place,
    exists,
    expand,
    folders,
    in_a_hurry,
    is_folder,
    literal_folder,
    locate,
    open_buffered,
    read,
    redacted,
    sizes,
    translated,
)

_PACKED = (".gz", ".tgz", ".bz2", ".xz", ".zst", ".zip")
"""The suffixes of compressed files."""
_KINDS = 3
"""The number of kinds of files that a message names."""
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_VALID = ("valid", "val", "validation")
_OWN: tuple[Split, ...] = ("valid", "test")
"""The splits that a source may bring beside its training rows."""
_STATE = "state.json"
"""Beside the Arrow files of a dataset that Hugging Face's ``datasets`` has saved: which files these are."""
_FOLDER = re.compile(r"([^=]+)=(.*)")

Function: TypeAlias = Callable[[], Mapping[str, Any]]
Source: TypeAlias = str | os.PathLike[str] | Function
"""A file, folder or glob; or a function that returns the columns, or the columns for ``train``, ``valid`` and
``test``. In place of columns it may return a torch ``Dataset``."""


def read_source(source: Source, wanted: Wanted = None) -> Mapping[Split, Columns]:
    """The source's columns for training, and those of its validation and test data if it brings its own.

    A folder or glob of ``.npy`` files has a column per file, one of tables or tar archives the rows of all,
    in the order of their names. A folder of ``train``, ``valid`` and ``test`` has all three, one of ``train``
    and ``valid`` both. Raises ``DataError`` if what is ``wanted`` cannot be read or understood.
    """
    if callable(source):
        return _from_function(source)
    name = os.fspath(source)
    with translated(DataError, f"cannot read {name}"):
        place = locate(name)
        with in_a_hurry():  # a person waits to hear that the storage is out of reach
            splits = split_folders(place) if _is_folder(place) else None
        if splits is None:
            return {"train": _read_path(name, wanted)}
        return {split: _read_path(str(part), wanted) for split, part in splits.items()}


def _is_folder(place: Place) -> bool:
    return not _is_known(place.path) and is_folder(place)


def _read_path(name: str, wanted: Wanted) -> Columns:
    """The columns of a file, a folder or a glob."""
    with translated(DataError, f"cannot read {name}"):
        place = locate(name)
        with in_a_hurry():
            pictures = _is_folder(place) and not expand(place, _is_known) and has_images(place)
            files = [] if pictures else files_of(name, place)
        if pictures:
            return read_images(place)
        suffixes = sorted({suffix_of(file.path) for file in files})
        if packed := [suffix for suffix in suffixes if suffix in _PACKED]:
            raise DataError(
                f"{redacted(name)} has compressed files ({', '.join(packed)}), of which no row can be read "
                "without all before it: unpack them; an archive stays a .tar (`gunzip x.tar.gz`)"
            )
        if len(suffixes) > 1 or suffixes[0] not in _KNOWN:
            raise DataError(
                f"{redacted(name)} has files of kind {', '.join(suffixes)}: choose one of "
                f"{', '.join(sorted(_KNOWN))}, or a Python function 'module:name' that returns "
                "{column: array}"
            )
        if suffixes[0] in TABLES:
            return read_tables(files, wanted, _folder_columns(_folder_of_wildcards(place), files))
        return _READERS[suffixes[0]](files)


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
    """What the user's function, or ``what`` of it, has returned as columns."""
    if is_dataset(returned):
        with translated(DataError, f"cannot write the rows of {what} to {gettempdir()} (TMPDIR)"):
            return materialized(returned, what)
    if not isinstance(returned, Mapping):
        raise DataError(
            f"{what} returned a {type(returned).__name__}: it must return {{column: array}}, or a torch "
            "Dataset"
        )
    return {name: as_column(name, column) for name, column in returned.items()}


def as_column(name: str, column: Any) -> NDArray[Any] | Varying:
    """A list of ``bytes``, a list of arrays of different lengths and a masked array are columns, too."""
    if isinstance(column, Varying):
        return column
    if isinstance(column, np.ma.MaskedArray):
        return _without_mask(column)
    is_object = isinstance(column, np.ndarray) and column.dtype == object and column.ndim == 1
    if not (is_object or isinstance(column, list | tuple)):
        return _array(name, column)
    if any(isinstance(value, bytes | bytearray | memoryview) for value in column):
        return encoded(column, name)
    if any(hasattr(value, "__len__") and not isinstance(value, str) for value in column):
        try:
            alike = len({np.shape(value) for value in column}) == 1
        except ValueError:  # nested, and ragged in itself
            alike = False
        if is_object or not alike:
            return sequences(column, name)
    if len({isinstance(value, str) for value in column}) > 1:  # numpy would make all of them text
        return np.array([None if _is_missing(value) else value for value in column], object)
    return np.asarray(column)


def _array(name: str, column: Any) -> NDArray[Any]:
    """The array that the user's object is, or can be made of."""
    try:
        array, why = np.asarray(column), ""
    except (RuntimeError, TypeError, ValueError) as error:
        # Of torch: it is sparse, nested or bfloat16, or has a gradient.
        array, why = np.empty((), object), f" ({error})"
    if array.ndim == 0 and array.dtype == object:
        kind = f"{type(column).__module__}.{type(column).__qualname__}"
        raise DataError(
            f"column {name!r} is a {kind}, which is no array{why}: give an array or a plain tensor, such as "
            "`x.toarray()`, `x.to_dense()`, `x.detach().float()`, or `list(x)`"
        )
    return array


def _without_mask(column: Any) -> NDArray[Any]:
    """What is masked is missing: NaN among numbers with fractions, none among others."""
    if not np.ma.is_masked(column):
        return np.asarray(column)
    if column.ndim == 1 and column.dtype.kind not in "fc":
        values = column.data.astype(object)
        values[np.ma.getmaskarray(column)] = None  # to `filled`, None is the default of the dtype
        return np.asarray(values)
    numbers = column if column.dtype.kind in "fc" else column.astype(np.float64)
    return np.asarray(numbers.filled(np.nan))


def _is_missing(value: Any) -> bool:
    """Whether the value stands for none, as pandas has it among words: NaN, NaT or NA."""
    return type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)


def files_of(name: str, place: Place, known: Collection[str] = ()) -> list[Place]:
    """The files that the ``name`` of a file, a folder or a glob stands for, sorted; of a folder, those with
    the ``known`` suffixes, by default those that ``prepare`` reads."""
    known = known or _KNOWN
    files = [
        file for part in _numbered(place) for file in expand(part, lambda path: suffix_of(path) in known)
    ]
    if _is_folder(place):
        files = _without_others(place, files)
    if not files:
        raise DataError(
            f"{redacted(name)} {_nothing_known(place)}: give a file, a folder or a glob of "
            f"{', '.join(sorted(known))}, a folder with a sub-folder of pictures for each class, or a "
            "Python function 'module:name' that returns {column: array}"
        )
    return files


def _numbered(place: Place) -> list[Place]:
    """The files of a name such as ``shard-{000..015}.tar``, or the place itself."""
    match = _RANGE.search(place.path)
    if match is None:
        return [place]
    first, last = map(int, match.groups())
    if last < first:
        raise DataError(f"{place} counts down from {match[1]} to {match[2]}: give the smaller number first")
    before, behind = place.path[: match.start()], place.path[match.end() :]
    names = (f"{before}{number:0{len(match[1])}d}{behind}" for number in range(first, last + 1))
    return [part for name in names for part in _numbered(Place(place.fs, name))]


def _folder_of_wildcards(place: Place) -> str:
    """The folder in which the wildcards and numbers of a name are looked up."""
    match = _RANGE.search(place.path)
    return literal_folder(place if match is None else Place(place.fs, place.path[: match.start()] + "*"))


def split_folders(place: Place) -> dict[Split, Place] | None:
    """The folders of training, validation and test data in a folder of both of the first, or all, by their
    usual names."""
    names = set(folders(place))
    valid = [name for name in _VALID if name in names]
    if "train" not in names or not valid:
        return None
    if len(valid) > 1:
        raise DataError(
            f"{place} has {' and '.join(valid)}: name one of them as `valid`, and train as `source`"
        )
    found: dict[Split, Place] = {"train": place / "train", "valid": place / valid[0]}
    if "test" in names:
        found["test"] = place / "test"
    return found


def _without_others(folder: Place, files: Sequence[Place]) -> list[Place]:
    """The files of a dataset that ``datasets`` has saved in the folder, without its caches; else all."""
    if not exists(folder / _STATE):
        return list(files)
    state = json.loads(read(folder / _STATE))
    if state.get("_indices_data_files"):
        raise DataError(
            f"the dataset {folder} is a selection of other rows: call flatten_indices(), and save it again"
        )
    return [folder / entry["filename"] for entry in state.get("_data_files", ())] or list(files)


def _folder_columns(folder: str, files: Sequence[Place]) -> list[dict[str, str]]:
    """By file, the columns in the names of its folders below ``folder``; an empty list if there are none."""
    names = [file.path.removeprefix(folder).strip("/").split("/")[:-1] for file in files]
    found = [
        {unquote(match[1]): unquote(match[2]) for name in inside if (match := _FOLDER.fullmatch(name))}
        for inside in names
    ]
    return found if any(found) else []


def _nothing_known(place: Place) -> str:
    """Why no file of a known kind is at ``place``."""
    try:
        kinds = Counter(suffix_of(path) or "without a suffix" for path in sizes(place))
    except (FileNotFoundError, NotADirectoryError):
        kinds = Counter()
    if not kinds:
        return "has no files" if exists(place) else f"does not exist{_nearest(place)}"
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(_KINDS))
    return f"has no file of a known kind at its top, but in all {counts}"


def _nearest(place: Place) -> str:
    """The file of the same folder of this machine whose name is the nearest one, if there is any."""
    path = Path(place.path)
    if not place.local or not path.parent.is_dir():
        return ""
    near = get_close_matches(path.name, [other.name for other in path.parent.iterdir()], n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _read_npy(place: Place) -> NDArray[Any]:
    with translated(DataError, f"cannot read {place}"):
        if place.local:
            array: NDArray[Any] = np.load(place.path, mmap_mode="r", allow_pickle=False)
            return array
        with open_buffered(place) as file:
            loaded: NDArray[Any] = np.load(file, allow_pickle=False)
            return loaded


def _npy_columns(files: list[Place]) -> Columns:
    places: dict[str, Place] = {}
    for file in files:
        name = PurePosixPath(file.path).stem
        if (other := places.setdefault(name, file)) is not file:
            raise DataError(f"{other} and {file} are both column {name!r}: give the files of one folder")
    return {name: _read_npy(file) for name, file in places.items()}


def _is_known(path: str) -> bool:
    return suffix_of(path) in _KNOWN


def _npz_columns(files: list[Place]) -> Columns:
    if len(files) > 1:
        raise DataError(f"{len(files)} .npz files, such as {files[0]} and {files[1]}: give one")
    with open_buffered(files[0]) as file, np.load(file, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


_READERS: Mapping[str, Callable[[list[Place]], Columns]] = {
    ".npy": _npy_columns,
    ".npz": _npz_columns,
    ".tar": lambda files: read_shards(files, as_column),
}
_KNOWN = frozenset((*_READERS, *TABLES))
