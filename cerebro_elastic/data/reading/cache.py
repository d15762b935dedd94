"""A host's cache of partitions: each file is read once per host, checked, then memory-mapped.

A file gets its final name only after its size and sha256 have been checked; a process that is killed before
leaves a temporary name, which the next fetch removes. Beside each file lie the sums of its rows
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
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from cerebro_elastic.data.made_partition import MadePartition, compare, made_in, path_in
from cerebro_elastic.data.manifest import Manifest, PartitionFiles, Split, check_unchanged
from cerebro_elastic.data.reading.cached_column import CachedColumn, cached_columns
from cerebro_elastic.data.reading.partition import Partition
from cerebro_elastic.errors import DamagedData, DataError, DiskFull
from cerebro_elastic.system.cache_space import CacheSpace, Room, disk_space, locked, use
from cerebro_elastic.system.files import is_full, locate, translated, write_text

Make: TypeAlias = Callable[[Manifest, PartitionFiles, Path, Callable[[], None]], MadePartition]
"""Makes the column files of a partition of shards in a folder (``shards/making.py``)."""


class PartitionCache:
    """The cache under the folder ``root``, shared by all processes of the host.

    All partitions under it take at most ``limit_bytes``, unless more are in use at the same time; ``None``:
    all of the disk. ``make`` makes column files of a partition of shards.
    """

    def __init__(self, root: Path, limit_bytes: int | None = None, make: Make | None = None) -> None:
        self.root = root
        self.limit_bytes = limit_bytes
        self._make = make
        self._compared = set[Path]()
        """The folders of partitions of shards that were compared with the run's record."""

    def fetch(
        self,
        url: str,
        manifest: Manifest,
        split: Split,
        index: int,
        beat: Callable[[], None] = lambda: None,
        room: Room = "needed",
    ) -> Partition:
        """Partition ``index`` of the dataset at ``url``, from the cache or fetched into it, however long that
        takes: ``beat`` is called again and again, and its exceptions end the fetch. It stays in the cache as
        long as the returned partition exists.

        Raises ``DataError`` if a file is missing there or differs from the manifest, ``StorageError`` if that
        cannot be checked, ``DiskFull`` if the disk has no space, ``NoRoom`` if the limit leaves none and the
        partition is not ``needed``. Other processes that want the same partition wait and share it.
        """
        name = f"{split} partition {index} of {url}"
        folder, of_shards = self._folder(manifest, split, index), manifest.split(split)[index].shards
        with translated(DataError, f"cannot fetch {name} into {folder}"):
            lock = use(folder)
            try:
                partition = self._found(manifest, split, index, name)
                if partition is None:
                    with locked(folder, beat):
                        if of_shards:
                            self._make_columns(manifest, split, index, beat, room)
                        else:
                            entries = self._entries(manifest, split, index)
                            with self._room(entries, url, room):
                                self._bring_in_place_of_others(entries, url, manifest, beat, room)
                    partition = self._opened(manifest, split, index, name)
                if of_shards and folder not in self._compared:
                    compare(url, split, index, _made_here(folder))
                    self._compared.add(folder)
            except BaseException:
                os.close(lock)
                raise
            weakref.finalize(partition, os.close, lock)
            return partition

    def _found(self, manifest: Manifest, split: Split, index: int, name: str) -> Partition | None:
        """The partition, if it is in the cache."""
        try:
            entries = self._entries(manifest, split, index)
            if not entries or not all(entry.is_its_own for entry in entries):
                return None
            return self._opened(manifest, split, index, name)
        except (OSError, ValueError, DamagedData):  # gone, cut short or changed since it was checked
            return None

    def _room(self, entries: list[CachedColumn], url: str, room: Room) -> AbstractContextManager[None]:
        """Room for those of the partition's files that take space, within the block."""
        missing = [entry for entry in entries if not entry.ready]
        if self.limit_bytes is None or not any(entry.takes_space(locate(url)) for entry in missing):
            return nullcontext()
        return _reserved(CacheSpace(self.root, self.limit_bytes), entries, room)

    def holds(self, manifest: Manifest, split: Split, index: int) -> bool:
        """Whether a partition is here, whole and checked."""
        entries = self._entries(manifest, split, index)
        return bool(entries) and all(entry.ready for entry in entries)

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

    def _make_columns(
        self, manifest: Manifest, split: Split, index: int, beat: Callable[[], None], room: Room
    ) -> None:
        """Make a partition's files of its shards, unless those that lie here are whole."""
        assert self._make is not None, "a cache of shards has a function that makes columns of them"
        folder, files = self._folder(manifest, split, index), manifest.split(split)[index]
        entries = self._entries(manifest, split, index)
        if entries and all(entry.is_its_own or entry.check(beat) for entry in entries):
            return
        limit = self.limit_bytes
        space = disk_space(self.root) if limit is None else CacheSpace(self.root, limit)
        with space.reserved(folder, manifest.cached_bytes(files), room):
            made = self._make(manifest, files, folder, beat)
        # The values of a ragged column are summed by its offsets, which precede them.
        made_files = replace(files, files=made.files, rows=made.rows)
        taken = [entry.taken_in(beat) for entry in cached_columns(folder, manifest.columns, made_files)]
        made = replace(made, files=tuple(entry.file for entry in taken))
        write_text(path_in(folder), made.to_json().decode())

    def _opened(self, manifest: Manifest, split: Split, index: int, name: str) -> Partition:
        rows = self._files(manifest, split, index).rows
        return _opened(index, rows, self._entries(manifest, split, index), name)

    def _entries(self, manifest: Manifest, split: Split, index: int) -> list[CachedColumn]:
        """The partition's files in the cache; none if they are still to be made of shards."""
        files, folder = self._files(manifest, split, index), self._folder(manifest, split, index)
        return list(cached_columns(folder, manifest.columns, files)) if files.files else []

    def _files(self, manifest: Manifest, split: Split, index: int) -> PartitionFiles:
        """The partition; of shards with the files that were made of them here."""
        files = manifest.split(split)[index]
        if not files.shards or (made := made_in(self._folder(manifest, split, index))) is None:
            return files
        return replace(files, files=made.files, rows=made.rows or files.rows)

    def _folder(self, manifest: Manifest, split: Split, index: int) -> Path:
        return self.root / manifest.digest / f"{split}-{index:05d}"


def _made_here(folder: Path) -> MadePartition:
    made = made_in(folder)
    if made is None:
        raise DamagedData(f"{path_in(folder)} is gone since the partition was opened: it is made again")
    return made


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
