"""Tar archives in the layout of WebDataset: the files of a sample follow one another, and have its key before
the first dot of their names (``tar_members.py`` lists the files)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.categories import coded
from cerebro_elastic.data.file_ranges import FileRanges
from cerebro_elastic.data.ragged import Varying, parts
from cerebro_elastic.data.tar_members import files_in
from cerebro_elastic.errors import DataError
from cerebro_elastic.system.files import Place


@dataclass(frozen=True, slots=True)
class _Sample:
    """The files of a sample."""

    shard: int
    """The number of its archive."""
    key: str
    """Its name in the archive."""
    members: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By extension, where the file begins in the archive and its bytes."""


def read_shards(
    files: Sequence[Place], as_column: Callable[[str, list[Any]], NDArray[Any] | Varying]
) -> dict[str, NDArray[Any] | Varying]:
    """A column for each extension: of encoded values, of whole numbers or class names (``cls``), and for each
    field of ``json``. Raises ``DataError`` for an archive that is cut off or no such.

    Args:
        files: The archives.
        as_column: Makes a column of a name and a list of values.
    """
    samples = [sample for shard, file in enumerate(files) for sample in _samples(shard, file)]
    if not samples:
        raise DataError(f"{files[0]} has no samples: give archives of files such as 0001.jpg")
    columns: dict[str, NDArray[Any] | Varying] = {}
    for extension in dict.fromkeys(name for sample in samples for name in sample.members):
        column = _ranges(files, samples, extension)
        _check_keys(column, extension)
        parse = _PARSERS.get(extension)
        if parse is None:
            columns[extension] = column
        else:
            values = _parsed(column, parse)
            if extension == "cls" and all(isinstance(value, str) for value in values):
                columns[extension] = coded(values, f"{files[0]}: the .cls files")
                continue
            columns |= {name: as_column(name, rows) for name, rows in _fields(extension, values).items()}
    return columns


def _samples(shard: int, file: Place) -> Iterator[_Sample]:
    sample = None
    for path, start, file_bytes in files_in(file):
        folder, slash, name = path.rpartition("/")
        stem, _, extension = name.partition(".")
        extension = extension.lower()
        if not stem or not extension:  # a hidden file, or one without a kind
            continue
        if sample is None or sample.key != folder + slash + stem:
            if sample is not None:
                yield sample
            sample = _Sample(shard, folder + slash + stem)
        if extension in sample.members:
            raise DataError(f"{file} has {path} twice in one sample: keys must differ")
        sample.members[extension] = start, file_bytes
    if sample is not None:
        yield sample


def _ranges(files: Sequence[Place], samples: Sequence[_Sample], extension: str) -> FileRanges:
    members = [sample.members.get(extension) for sample in samples]
    return FileRanges(
        files,
        np.array([-1 if at is None else sample.shard for at, sample in zip(members, samples, strict=True)]),
        np.array([0 if at is None else at[0] for at in members], np.int64),
        np.array([0 if at is None else at[1] for at in members], np.int64),
        [f"{files[sample.shard]}: {sample.key}.{extension}" for sample in samples],
    )


def _check_keys(column: FileRanges, extension: str) -> None:
    """Refuse keys with dots, such as a time or a version: samples would run into one another."""
    missing = np.flatnonzero(column.file_of < 0)
    if "." in extension and extension[0].isdigit() and len(missing):
        has = column.keys[int(np.flatnonzero(column.file_of >= 0)[0])]
        raise DataError(
            f"{has} is the {extension!r} of its sample, and {column.keys[int(missing[0])]} does not exist: a "
            "sample's name ends at its first dot; write the archives again with names that have no dots"
        )


def _parsed(column: FileRanges, parse: Callable[[bytes], Any]) -> list[Any]:
    """The parsed values; ``None`` where there is none."""
    parsed: list[Any] = [None] * len(column)
    rows = np.flatnonzero(column.file_of >= 0)
    for part in parts(column.sizes[rows]):
        for row, value in zip(rows[part].tolist(), column.values(rows[part]), strict=True):
            try:
                parsed[row] = parse(value)
            except ValueError as exc:
                raise DataError(f"{column.keys[row]} cannot be read: {exc}; correct it") from exc
    return parsed


def _fields(extension: str, values: list[Any]) -> Mapping[str, list[Any]]:
    """The columns of the parsed values: of objects, one for each field."""
    if not any(isinstance(value, dict) for value in values):
        return {extension: values}
    names = dict.fromkeys(name for value in values if isinstance(value, dict) for name in value)
    return {
        f"{extension}.{name}": [value.get(name) if isinstance(value, dict) else None for value in values]
        for name in names
    }


def _class(value: bytes) -> int | str:
    text = value.decode().strip()
    try:
        return int(text)
    except ValueError:
        return text


_PARSERS: Mapping[str, Callable[[bytes], Any]] = {"cls": _class, "json": json.loads}
"""By extension, what reads a value that is no encoded one."""
