"""Tar archives in the layout of WebDataset: the files of a sample follow one another, and have its key before
the first dot of their names. What would lose or change a file is refused."""

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

from cerebro_elastic.data.preparing.categories import coded
from cerebro_elastic.data.preparing.encoded_files import FileRanges
from cerebro_elastic.data.ragged import Varying, parts
from cerebro_elastic.errors import DataError
from cerebro_elastic.system.files import CHUNK, Place, open_buffered, size

File: TypeAlias = tuple[str, int, int]
"""A file's name, where it begins in the archive, and its bytes."""

_BLOCK = tarfile.BLOCKSIZE
_LINKS = 40
"""The number of links that may lead to one another, as on Linux."""
_WITHOUT_BYTES = frozenset({tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, b"D", b"V"})
"""The types of members that hold no file: folders (``D``: with a list of their files), devices, a label."""


def _files_in(archive: Place, *, first: bool = False) -> Iterator[File]:
    """The archive's files, in its order; a link is the file that it leads to. Raises ``DataError`` unless the
    archive is whole and each file's bytes lie in it as they are. ``first``: the caller stops early, and what
    lies behind is not looked at."""
    members: dict[str, tarfile.TarInfo] = {}

    def noted() -> Iterator[tarfile.TarInfo]:
        for member in _members(archive):
            name = posixpath.normpath(member.name)
            if name in members and not member.isdir():
                raise DataError(
                    f"{archive} has {member.name} twice: the names of its files must differ; write it again "
                    "from a folder that has each file once"
                )
            members[name] = member
            yield member

    for member in noted() if first else list(noted()):  # links may lead to files behind them
        if member.type in _WITHOUT_BYTES:
            continue
        target = _target(archive, member, members)
        if target.type not in tarfile.REGULAR_TYPES:
            raise DataError(
                f"{archive} has {member.name}, of a type {target.type.decode(errors='replace')!r} that is no "
                "file: write the archive again from files"
            )
        yield member.name, target.offset_data, target.size


def _target(archive: Place, link: tarfile.TarInfo, members: Mapping[str, tarfile.TarInfo]) -> tarfile.TarInfo:
    """The member that a link leads to, or the member itself if it is no link."""
    member: tarfile.TarInfo | None = link
    for _ in range(_LINKS):
        if member is None or not (member.issym() or member.islnk()):
            break
        folder = posixpath.dirname(member.name) if member.issym() else ""
        member = members.get(posixpath.normpath(posixpath.join(folder, member.linkname)))
    else:
        member = None
    if member is None or member.isdir():
        raise DataError(
            f"{archive} has the link {link.name} to {link.linkname}, which is no file in it: write the "
            "archive again with the files themselves (tar --dereference)"
        )
    return member


def _members(archive: Place) -> Iterator[tarfile.TarInfo]:
    """All that the archive holds. Raises ``DataError`` unless it is whole."""
    length = size(archive)
    with open_buffered(archive) as opened:
        try:
            with tarfile.open(fileobj=opened, mode="r:") as file:
                end = 0
                for member in file:
                    if member.issparse():
                        raise DataError(
                            f"{archive} has {member.name} without its zeros, as a sparse file: write it "
                            "again without tar's --sparse (-S)"
                        )
                    held = member.size if _has_bytes(member) else 0
                    end = member.offset_data + -(-held // _BLOCK) * _BLOCK
                    if end > length:
                        raise _cut_off(archive, member.name)
                    yield member
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
                    f"{archive} goes on behind its end at byte {end}: the file is damaged there, or archives "
                    "were joined by `cat`; give them one by one"
                )
            last = opened.read(CHUNK)


def _has_bytes(member: tarfile.TarInfo) -> bool:
    """Whether the member's bytes follow its header. A hard link may give the size of its file."""
    return member.isreg() or member.type not in tarfile.SUPPORTED_TYPES


def _cut_off(archive: Place, where: str) -> DataError:
    return DataError(f"the archive {archive} is cut off at {where}: copy it again from where it came from")


@dataclass(frozen=True, slots=True)
class _Sample:
    shard: int
    """The number of its archive."""
    key: str
    """Its name in the archive."""
    members: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By extension, where the file begins in the archive and its bytes."""


def count_samples(file: Place) -> int:
    """How many samples an archive has. Of a remote one, what lies between the headers of large files is not
    read."""
    return sum(1 for _ in _samples(0, file))


def read_shards(
    files: Sequence[Place],
    as_column: Callable[[str, list[Any]], NDArray[Any] | Varying],
    *,
    number_words: bool = True,
    most: int | None = None,
) -> dict[str, NDArray[Any] | Varying]:
    """A column for each extension: of encoded values, of whole numbers or class names (``cls``), and for each
    field of ``json``. Raises ``DataError`` for an archive that is cut off or no such.

    Args:
        files: The archives.
        as_column: Makes a column of a name and a list of values.
        number_words: Class names become numbers in the order of the words; else they stay text.
        most: Of each archive, the number of samples to read from its beginning; by default all.
    """
    samples = [
        sample for shard, file in enumerate(files) for sample in islice(_samples(shard, file, most), most)
    ]
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
            if number_words and extension == "cls" and all(isinstance(value, str) for value in values):
                columns[extension] = coded(values, f"{files[0]}: the .cls files")
                continue
            columns |= {name: as_column(name, rows) for name, rows in _fields(extension, values).items()}
    return columns


def _samples(shard: int, file: Place, most: int | None = None) -> Iterator[_Sample]:
    sample = None
    for path, start, file_bytes in _files_in(file, first=most is not None):
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
    if "." in extension and extension[0].isdigit() and (missing := column.missing):
        has = column.keys[int(np.argmax(column.file_of >= 0))]
        raise DataError(
            f"{has} is the {extension!r} of its sample, and {next(iter(missing.values()))} does not exist: a "
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
