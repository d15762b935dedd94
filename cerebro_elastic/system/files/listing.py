"""The files in folders, and those that match a pattern."""

from __future__ import annotations

import glob
import os
import posixpath
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cerebro_elastic.errors import DataError
from cerebro_elastic.system.files.operations import is_folder
from cerebro_elastic.system.files.place import FileSystem, Place, attempt, faults_raised


def sizes(folder: Place) -> dict[str, int]:
    """The sizes of all files in the folder and below, by path."""
    files = attempt(folder, lambda fs: fs.find(folder.path, detail=True))
    return {path: info["size"] for path, info in files.items()}


def sizes_through_links(folder: Place) -> dict[str, int]:
    """The same, where a local link to a folder counts as that folder. Raises ``DataError`` for one that leads
    back to a folder above it: its files would come again and again."""
    if not folder.local:
        return sizes(folder)
    with faults_raised(folder):
        return dict(_below(folder.path.rstrip("/") or "/", ()))


def _below(folder: str, above: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    real = os.path.realpath(folder)
    if real in above:
        raise DataError(f"the link {folder} leads to {real}, a folder that it lies in: remove the link")
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _below(entry.path, (*above, real))
            else:
                yield entry.path, entry.stat().st_size


@dataclass(frozen=True, slots=True)
class Identity:
    """Identifies a file without reading it."""

    bytes: int
    tag: str
    """The ETag of an object; of other files the time when they were changed."""

    def __str__(self) -> str:
        return f"{self.bytes} bytes ({self.tag})"


def identity(place: Place) -> Identity:
    """Of one file. Raises ``FileNotFoundError``."""
    return _identity(attempt(place, lambda fs: fs.info(place.path)))


def identities(folder: Place) -> dict[str, Identity]:
    """Of the files in the folder, not of those below, by path."""
    files = attempt(folder, lambda fs: fs.find(folder.path, maxdepth=1, detail=True))
    return {path: _identity(info) for path, info in files.items()}


def _identity(info: Mapping[str, Any]) -> Identity:
    known = (info.get(key) for key in ("ETag", "etag", "md5Hash", "mtime", "LastModified", "last_modified"))
    tag = next((str(value) for value in known if value is not None), "")
    return Identity(info["size"] or 0, tag.strip('"'))


def folders(folder: Place) -> list[str]:
    """The names of the folders in the folder."""
    found = attempt(folder, lambda fs: fs.ls(folder.path, detail=True))
    paths = [entry["name"].rstrip("/") for entry in found if entry["type"] != "file"]
    return [path.rpartition("/")[2] for path in paths if path != folder.path.rstrip("/")]


def expand(pattern: Place, keep: Callable[[str], bool]) -> list[Place]:
    """The files that a file's name, a folder or a glob names, sorted, without hidden ones; of a folder, those
    to ``keep``. The folders before the first wildcard are taken as they are, whatever their names."""

    def paths(fs: FileSystem) -> list[str]:
        if fs.isdir(pattern.path):
            return _shown(pattern.path, [path for path in fs.ls(pattern.path, detail=False) if keep(path)])
        if fs.exists(pattern.path):
            return [pattern.path]
        folder = literal_folder(pattern)
        escaped = glob.escape(folder) + pattern.path.removeprefix(folder)
        return _shown(folder, list(fs.glob(escaped)), pattern.path)

    return [Place(pattern.fs, path) for path in sorted(attempt(pattern, paths))]


def literal_folder(pattern: Place) -> str:
    """The longest beginning of a glob that is a folder. A sign such as ``[`` in it is part of its name."""
    folder = posixpath.dirname(pattern.path)
    while glob.has_magic(folder) and not is_folder(Place(pattern.fs, folder)):
        folder = posixpath.dirname(folder)
    return folder


def is_hidden(path: str) -> bool:
    """Whether a file is not meant for readers, or lies in such a folder: ``.x``, and ``~$x``, which Office
    writes beside an open file."""
    return any(part.startswith((".", "~$")) for part in path.split("/"))


def _shown(folder: str, paths: list[str], pattern: str = "") -> list[str]:
    """The paths without hidden ones, unless the pattern names them."""
    inside = len(folder.rstrip("/"))
    if is_hidden(pattern[inside:].lstrip("/")):
        return paths
    return [path for path in paths if not is_hidden(path[inside:].lstrip("/"))]
