"""Which files a tar archive has, and where their bytes lie. What would lose or change a file is refused."""

from __future__ import annotations

import io
import posixpath
import tarfile
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from cerebro_elastic.errors import DataError
from cerebro_elastic.system.files import CHUNK, Place, open_read, size

File: TypeAlias = tuple[str, int, int]
"""A file's name, where it begins in the archive, and its bytes."""

_BLOCK = tarfile.BLOCKSIZE
_LINKS = 40
"""The number of links that may lead to one another, as on Linux."""
_WITHOUT_BYTES = frozenset({tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, b"D", b"V"})
"""The types of members that hold no file: folders (``D``: with a list of their files), devices, a label."""


def files_in(archive: Place) -> list[File]:
    """The archive's files, in its order; a link is the file that it leads to. Raises ``DataError`` unless the
    archive is whole and each file's bytes lie in it as they are."""
    members = {}
    for member in _members(archive):
        name = posixpath.normpath(member.name)
        if name in members and not member.isdir():
            raise DataError(
                f"{archive} has {member.name} twice: the names of its files must differ; write it again "
                "from a folder that has each file once"
            )
        members[name] = member
    return list(_files(archive, members))


def _files(archive: Place, members: Mapping[str, tarfile.TarInfo]) -> Iterator[File]:
    for member in members.values():
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
    with io.BufferedReader(open_read(archive), CHUNK) as opened:
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
