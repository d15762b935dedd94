"""A host's cache of partitions: each file is read once per host, checked, then memory-mapped.

A file gets its final name only after its size and sha256 were found right; a process that is killed in
the middle leaves a temporary name, which the next fetch removes. What another process brought, perhaps long
ago, may have been damaged since: each process checks a file again before it first uses it, and brings a
damaged one again. A dataset on a local disk is hard-linked into the cache instead of copied where the
file systems allow: it takes no space, and is checked and found the same way. (`prepare` never
writes into an existing file, so a link does not change under its readers.)
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from cerebro_elastic.data.manifest import ColumnFile, Manifest, Split
from cerebro_elastic.data.partition import Partition, open_partition
from cerebro_elastic.errors import DataError
from cerebro_elastic.files import (
    Content,
    Place,
    as_its_folder,
    chunks,
    digest,
    locate,
    make_folder,
    pour,
    replacing,
    translated,
)

_LOOK_SECONDS = 0.05
"""How often who waits for another process's fetch looks whether it is over."""


class PartitionCache:
    """The cache under the folder ``root``, shared by all processes of the host. ``hits`` counts fetches by
    this process that found what they wanted, ``misses`` the others."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._checked: set[Path] = set()
        self.hits = self.misses = 0

    def fetch(
        self,
        url: str,
        manifest: Manifest,
        split: Split,
        index: int,
        beat: Callable[[], None] = lambda: None,
    ) -> Partition:
        """Partition ``index`` of the dataset at ``url``, from the cache or fetched into it, which may take as
        long as it likes: ``beat`` is called again and again, and what it raises ends the fetch.

        Raises ``DataError`` if a file is missing there or not what the manifest says, ``StorageError`` if
        that cannot be known, ``DiskFull`` if the cache has no space. Other processes that want the same
        partition wait and share it.
        """
        folder = self._folder(manifest, split, index)
        partition = manifest.split(split)[index]
        paths = _paths(folder, manifest)
        if self._good(paths.values(), partition.files, beat):
            self.hits += 1
        else:
            self.misses += 1
            with (
                translated(DataError, f"cannot fetch {split} partition {index} of {url} into {folder}"),
                _locked(folder, beat),
            ):
                for path, file in zip(paths.values(), partition.files, strict=True):
                    if not self._good([path], [file], beat):
                        _bring(locate(url) / file.path, path, file.content, beat)
                        self._checked.add(path)
        return open_partition(index, partition.rows, paths)

    def holds(self, manifest: Manifest, split: Split, index: int) -> bool:
        """Whether a partition is here, whole."""
        paths = _paths(self._folder(manifest, split, index), manifest)
        return _present(paths.values(), manifest.split(split)[index].files)

    def cached(self, manifest: Manifest) -> tuple[int, ...]:
        """The training partitions that are here."""
        return tuple(j for j in range(len(manifest.train)) if self.holds(manifest, "train", j))

    def _good(self, paths: Iterable[Path], files: Iterable[ColumnFile], beat: Callable[[], None]) -> bool:
        """Whether the files are here and have been checked by this process, now or before."""
        return all(self._good_file(path, file, beat) for path, file in zip(paths, files, strict=True))

    def _good_file(self, path: Path, file: ColumnFile, beat: Callable[[], None]) -> bool:
        if not _present([path], [file]):
            return False
        if path not in self._checked and _content(locate(str(path)), beat) == file.content:
            self._checked.add(path)
        return path in self._checked

    def _folder(self, manifest: Manifest, split: Split, index: int) -> Path:
        return self.root / manifest.digest / f"{split}-{index:05d}"


def _paths(folder: Path, manifest: Manifest) -> dict[str, Path]:
    """By column name. File names are our own: a manifest from elsewhere cannot point out of the cache."""
    return {column.name: folder / f"{at:03d}.npy" for at, column in enumerate(manifest.columns)}


def _present(paths: Iterable[Path], files: Iterable[ColumnFile]) -> bool:
    return all(_size(path) == file.bytes for path, file in zip(paths, files, strict=True))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return -1


@contextmanager
def _locked(folder: Path, beat: Callable[[], None]) -> Iterator[None]:
    """Hold the folder for this process; what a killed one left there is removed first. Who waits for it lives
    as long as what another one brings grows: a fetch that hangs is a hang for both."""
    make_folder(folder)
    brought = -1
    with open(folder / "lock", "w", opener=as_its_folder) as lock:
        while not _held(lock):
            if (by_now := sum(map(_size, folder.iterdir()))) != brought:
                brought = by_now
                beat()
            time.sleep(_LOOK_SECONDS)
        for leftover in folder.glob("*.tmp"):
            leftover.unlink()
        yield


def _held(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _bring(source: Place, path: Path, expected: Content, beat: Callable[[], None]) -> None:
    """Put the file at ``path``; one bad read is forgiven."""
    try:
        _bring_once(source, path, expected, beat)
    except DataError:
        _bring_once(source, path, expected, beat)


def _bring_once(source: Place, path: Path, expected: Content, beat: Callable[[], None]) -> None:
    with replacing(str(path)) as temporary:
        linked = _linked(source, temporary)
        found = _content(source, beat) if linked else _copied(source, temporary, beat)
        if found != expected:
            raise DataError(
                f"{source} is damaged: expected {expected}, found {found}, twice; "
                "restore the file, or prepare the dataset again at another place"
            )


def _linked(source: Place, path: str) -> bool:
    """Whether ``path`` could become another name of the file: not across file systems or owners."""
    if not source.local:
        return False
    try:
        os.link(os.path.realpath(source.path), path)
    except OSError:
        return False
    return True


def _copied(source: Place, path: str, beat: Callable[[], None]) -> Content:
    with open(path, "xb", opener=as_its_folder) as file:
        return pour(_beating(source, beat), file)


def _content(place: Place, beat: Callable[[], None]) -> Content:
    return digest(_beating(place, beat))


def _beating(place: Place, beat: Callable[[], None]) -> Iterator[bytes]:
    for chunk in chunks(place):
        beat()
        yield chunk
