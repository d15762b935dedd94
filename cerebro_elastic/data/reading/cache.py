"""A host's cache of partitions: each file is read once per host, checked, then memory-mapped.

A file gets its final name only after its size and sha256 were found right; a process that is killed in
the middle leaves a temporary name, which the next fetch removes. Beside each file lie the sums of its rows
(``row_sums.py``), taken from the bytes that were hashed. Rows are compared with them whenever they are read:
damage that comes later is found before anything is trained on it.

The cache shares no inode with a dataset on a local disk. It clones a file where the file system can; else it
refers to one that lies on the cache's own file system, which is then read in place; it copies the others.
If its space is limited, or its disk is full, it drops partitions that nobody uses (``cache_space.py``).
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

from cerebro_elastic.data.manifest import Manifest, Split, check_unchanged
from cerebro_elastic.data.reading.cached_column import CachedColumn, cached_columns
from cerebro_elastic.data.reading.partition import Partition
from cerebro_elastic.errors import DamagedData, DataError, DiskFull
from cerebro_elastic.system.cache_space import CacheSpace, Room, disk_space, locked, use
from cerebro_elastic.system.files import is_full, locate, translated


class PartitionCache:
    """The cache under the folder ``root``, shared by all processes of the host.

    All partitions under it take at most ``limit_bytes``, unless more are in use at the same time; ``None``:
    what the disk has. ``hits`` counts the fetches of this process that found their partition in the cache,
    ``misses`` the others.
    """

    def __init__(self, root: Path, limit_bytes: int | None = None) -> None:
        self.root = root
        self.limit_bytes = limit_bytes
        self.hits = self.misses = 0

    def fetch(
        self,
        url: str,
        manifest: Manifest,
        split: Split,
        index: int,
        beat: Callable[[], None] = lambda: None,
        room: Room = "needed",
    ) -> Partition:
        """Partition ``index`` of the dataset at ``url``, from the cache or fetched into it, which may take as
        long as it likes: ``beat`` is called again and again, and what it raises ends the fetch. It stays in
        the cache as long as the partition that is returned exists.

        Raises ``DataError`` if a file is missing there or not what the manifest says, ``StorageError`` if
        that cannot be known, ``DiskFull`` if the disk has no space, ``NoRoom`` if there is none within the
        limit and the partition is not ``needed``. Other processes that want the same partition wait and share
        it.
        """
        name = f"{split} partition {index} of {url}"
        entries, folder = self._entries(manifest, split, index), self._folder(manifest, split, index)
        rows = manifest.split(split)[index].rows
        with translated(DataError, f"cannot fetch {name} into {folder}"):
            lock = use(folder)
            try:
                partition = self._found(index, rows, entries, name)
                if partition is None:
                    self.misses += 1
                    with locked(folder, beat), self._room(entries, url, room):
                        self._bring_in_place_of_others(entries, url, manifest, beat, room)
                    partition = _opened(index, rows, entries, name)
            except BaseException:
                os.close(lock)
                raise
            weakref.finalize(partition, os.close, lock)
            return partition

    def _found(self, index: int, rows: int, entries: list[CachedColumn], name: str) -> Partition | None:
        """The partition, if it is in the cache."""
        try:
            if not all(entry.is_its_own for entry in entries):
                return None
            partition = _opened(index, rows, entries, name)
        except (OSError, ValueError, DamagedData):  # gone, cut short or changed since it was checked
            return None
        self.hits += 1
        return partition

    def _room(self, entries: list[CachedColumn], url: str, room: Room) -> AbstractContextManager[None]:
        """Room for those of the partition's files that take space, within the block."""
        missing = [entry for entry in entries if not entry.ready]
        if self.limit_bytes is None or not any(entry.takes_space(locate(url)) for entry in missing):
            return nullcontext()
        return _reserved(CacheSpace(self.root, self.limit_bytes), entries, room)

    def holds(self, manifest: Manifest, split: Split, index: int) -> bool:
        """Whether a partition is here, whole and checked."""
        return all(entry.ready for entry in self._entries(manifest, split, index))

    def cached(self, manifest: Manifest) -> tuple[int, ...]:
        """The training partitions that are here."""
        return tuple(j for j in range(len(manifest.train)) if self.holds(manifest, "train", j))

    def _bring_in_place_of_others(
        self, entries: list[CachedColumn], url: str, manifest: Manifest, beat: Callable[[], None], room: Room
    ) -> None:
        """Bring the files; if that fills the disk and no limit was set, drop others, and try again."""
        try:
            self._bring(entries, url, manifest, beat)
        except (DiskFull, OSError) as exc:
            if self.limit_bytes is not None or not (isinstance(exc, DiskFull) or is_full(exc)):
                raise
            with _reserved(disk_space(self.root), entries, room):
                self._bring(entries, url, manifest, beat)

    def _bring(
        self, entries: list[CachedColumn], url: str, manifest: Manifest, beat: Callable[[], None]
    ) -> None:
        for entry in entries:
            if entry.is_its_own or entry.check(beat):
                continue
            source = locate(url) / entry.file.path
            try:
                entry.bring(source, beat)
            except DataError:
                check_unchanged(url, manifest.digest)
                raise
            except FileNotFoundError as exc:
                check_unchanged(url, manifest.digest)
                raise DataError(
                    f"{source} is missing: restore it, or prepare the dataset again at another place"
                ) from exc

    def _entries(self, manifest: Manifest, split: Split, index: int) -> list[CachedColumn]:
        folder, partition = self._folder(manifest, split, index), manifest.split(split)[index]
        return list(cached_columns(folder, manifest.columns, partition))

    def _folder(self, manifest: Manifest, split: Split, index: int) -> Path:
        return self.root / manifest.digest / f"{split}-{index:05d}"


def _reserved(space: CacheSpace, entries: list[CachedColumn], room: Room) -> AbstractContextManager[None]:
    size = sum(entry.file.bytes + entry.sums_bytes for entry in entries)
    return space.reserved(entries[0].path.parent, size, room)


def _opened(
    index: int, rows: int, entries: list[CachedColumn], name: str, *, again: bool = False
) -> Partition:
    # Values come behind the offsets of their column, and replace them here.
    columns = {entry.column.name: entry.open(again=again) for entry in entries}
    sums = {entry.column.name: entry.open_sums() for entry in entries}
    reopen = partial(_opened, index, rows, entries, name, again=True)
    return Partition(index, rows, columns, sums, name, lambda: (reopen, ()))
