"""Tar archives in the layout of WebDataset: the files of a sample follow one another, and have its key before
the first dot of their names. An archive that would lose or change a file is refused."""

from __future__ import annotations

import json
import posixpath
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.kinds.byte_ranges import FileRanges
from cerebro_elastic.data.kinds.kind import Facts, Wanted
from cerebro_elastic.data.kinds.values import as_column
from cerebro_elastic.data.ragged import Columns, Varying, parts
from cerebro_elastic.errors import DataError
from cerebro_elastic.system.files import CHUNK, Place, copied, open_buffered, size

File: TypeAlias = tuple[str, int, int]
"""A file's name, where it begins in the archive, and its bytes."""

_BLOCK = tarfile.BLOCKSIZE
_FEW = 64
"""The number of samples from which the number of all is estimated."""
_LOOK_BYTES = CHUNK // 16
"""Bytes that are read ahead where only the first samples are."""
_WITHOUT_BYTES = frozenset({tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, b"D", b"V"})
"""The types of members that hold no file: folders (``D``: with a list of their files), devices, a label."""


def look_at_tar(place: Place, _wanted: Wanted) -> Facts:
    """The estimated number of samples, by the first ones."""
    samples = list(islice(_samples(place, _LOOK_BYTES), _FEW))
    ends = [start + file_bytes for each in samples for start, file_bytes in each.members.values()]
    return Facts(None, rows_about=len(samples) * size(place) // max([1, *ends]))


def read_tar(place: Place, _wanted: Wanted, most: int | None, _schema: object = None) -> Iterator[Columns]:
    """A column for each extension: of encoded values, of whole numbers or class names (``cls``), and for each
    field of ``json``. Raises ``DataError`` for an archive that is cut off or no such."""
    if most is None and not place.local:
        place = copied(place)  # its values are read one by one, in any order
    samples = list(islice(_samples(place, CHUNK if most is None else _LOOK_BYTES), most))
    if not samples:
        raise DataError(f"{place} has no samples: give archives of files such as 0001.jpg")
    columns: dict[str, NDArray[Any] | Varying] = {}
    for extension in dict.fromkeys(name for sample in samples for name in sample.members):
        column = _ranges(place, samples, extension)
        _check_keys(column, extension)
        if (parse := _PARSERS.get(extension)) is None:
            columns[extension] = column
        else:
            fields = _fields(extension, _parsed(column, parse))
            columns |= {name: as_column(name, rows) for name, rows in fields.items()}
    yield columns


@dataclass(frozen=True, slots=True)
class _Sample:
    key: str
    """Its name in the archive."""
    members: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By extension, where the file begins in the archive and its bytes."""


def _samples(archive: Place, ahead: int) -> Iterator[_Sample]:
    sample = None
    for path, start, file_bytes in _files_in(archive, ahead):
        folder, slash, name = path.rpartition("/")
        stem, _, extension = name.partition(".")
        extension = extension.lower()
        if not stem or not extension:  # a hidden file, or one without a kind
            continue
        if sample is None or sample.key != folder + slash + stem:
            if sample is not None:
                yield sample
            sample = _Sample(folder + slash + stem)
        if extension in sample.members:
            raise DataError(f"{archive} has {path} twice in one sample: keys must differ")
        sample.members[extension] = start, file_bytes
    if sample is not None:
        yield sample


def _files_in(archive: Place, ahead: int) -> Iterator[File]:
    """The archive's files, in its order. ``ahead``: the bytes of a request. Raises ``DataError`` unless each
    file's bytes lie in it as they are and, at the end, unless the archive is whole."""
    length, names, end = size(archive), set[str](), 0
    with open_buffered(archive, ahead) as opened:
        try:
            with tarfile.open(fileobj=opened, mode="r:") as file:
                for member in file:
                    _check_member(archive, member)
                    has_bytes = member.isreg() or member.type not in tarfile.SUPPORTED_TYPES
                    end = member.offset_data + (-(-member.size // _BLOCK) * _BLOCK if has_bytes else 0)
                    if end > length:
                        raise _cut_off(archive, member.name)
                    if member.type in _WITHOUT_BYTES:
                        continue
                    if (name := posixpath.normpath(member.name)) in names:
                        raise DataError(
                            f"{archive} has {member.name} twice: the names of its files must differ; write "
                            "it again from a folder that has each file once"
                        )
                    names.add(name)
                    yield member.name, member.offset_data, member.size
        except tarfile.TarError as exc:
            if "unexpected end" in str(exc):
                raise _cut_off(archive, "its last file") from exc
            raise DataError(f"{archive} is no tar archive ({exc}): unpack it if it is compressed") from exc
        opened.seek(end)
        if len(last := opened.read(_BLOCK)) < _BLOCK:
            raise _cut_off(archive, "its end")
        while last:
            if last.strip(b"\0"):
                raise DataError(
                    f"{archive} continues behind its end at byte {end}: it is damaged there, or archives "
                    "were joined by `cat`; give them one by one"
                )
            last = opened.read(CHUNK)


def _check_member(archive: Place, member: tarfile.TarInfo) -> None:
    """Raise ``DataError`` for a member that is neither a file with its bytes nor without a file."""
    if member.issparse():
        what = "without its zeros, as a sparse file"
    elif member.issym() or member.islnk():
        what = f"a link to {member.linkname}"
    elif member.type not in tarfile.REGULAR_TYPES and member.type not in _WITHOUT_BYTES:
        what = f"of a type {member.type.decode(errors='replace')!r} that is no file"
    else:
        return
    raise DataError(
        f"{archive} has {member.name}, {what}: write it again from the files themselves (tar --dereference "
        "--hard-dereference, without --sparse)"
    )


def _cut_off(archive: Place, where: str) -> DataError:
    return DataError(f"the archive {archive} is cut off at {where}: copy it again from its origin")


def _ranges(archive: Place, samples: Sequence[_Sample], extension: str) -> FileRanges:
    members = [sample.members.get(extension) for sample in samples]
    return FileRanges(
        [archive],
        np.array([-1 if at is None else 0 for at in members], np.int64),
        np.array([0 if at is None else at[0] for at in members], np.int64),
        np.array([0 if at is None else at[1] for at in members], np.int64),
        [f"{archive}: {sample.key}.{extension}" for sample in samples],
    )


def _check_keys(column: FileRanges, extension: str) -> None:
    """Refuse keys with dots, such as a time or a version: samples would run into one another."""
    if "." in extension and extension[0].isdigit() and (missing := column.missing):
        has = column.keys[int(np.argmax(column.file_of >= 0))]
        raise DataError(
            f"{has} is the {extension!r} of its sample, and {next(iter(missing.values()))} does not exist: a "
            "sample's name ends at its first dot; write the archives again with names that have no dots"
        )


def _parsed(column: FileRanges, parse: Callable[[bytes], Any]) -> list[Any]:
    """The parsed values; ``None`` for a missing one."""
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
"""By extension, the reader of a value that is not encoded."""
