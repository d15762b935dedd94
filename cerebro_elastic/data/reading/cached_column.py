"""A column of a partition in the cache: how its file gets there, and when it may be used."""

from __future__ import annotations

import fcntl
import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cerebro_elastic.data.manifest import Column, ColumnFile, PartitionFiles
from cerebro_elastic.data.ragged import OFFSETS, Ragged
from cerebro_elastic.data.reading.cache_space import CLONE
from cerebro_elastic.data.reading.mapped import SUMS, Array, MappedArray, MappedRagged, OffsetsFile
from cerebro_elastic.data.reading.row_sums import EqualRowSums, RaggedRowSums, RowSums
from cerebro_elastic.errors import DataError
from cerebro_elastic.system.files import Place, as_its_folder, chunks, digest, locate, pour, replacing

Beat = Callable[[], None]

_SHA256_BYTES = 32
"""Of the sha256 that a file of sums begins with."""
_FICLONE = 0x40049409
"""``ioctl`` of Linux: a file of its own that shares its blocks with another until one of them is written."""


@dataclass(frozen=True, slots=True)
class CachedColumn:
    """A ``.npy`` file of a column in the cache.

    The sums of its rows lie beside it, behind that sha256. They are written last, from the bytes whose sha256
    was found right: a file with sums has been checked, by any process of the host. A process that finds
    damage removes the sums of the partition.
    """

    path: Path
    length: int
    """The length of its array: the partition's rows, or what a column of varying lengths has of values or
    offsets."""
    column: Column
    """Name, dtype and shape of the column."""
    file: ColumnFile
    """The content that the manifest demands."""
    offsets: CachedColumn | None = None
    """If these are the values of a column of varying lengths: the file of its offsets."""

    @property
    def sums_path(self) -> Path:
        return self.path.with_suffix(SUMS)

    def open(self) -> Array | Ragged:
        """The column, memory-mapped. Raises ``DamagedData`` if its offsets have changed since they were
        checked, ``DataError`` if they can be none."""
        if self.offsets is None:
            return self.array.open()
        return MappedRagged.open(self.array, self._offsets_file(self.offsets), self.column.kind)

    def _offsets_file(self, offsets: CachedColumn) -> OffsetsFile:
        return OffsetsFile(offsets.array, offsets.sums, self.length, self.column.name)

    @property
    def array(self) -> MappedArray:
        """Where it begins follows from the manifest: nothing is believed of what the file says."""
        shape = (self.length, *self.column.shape)
        start = self.file.bytes - self.length * self._item_bytes
        return MappedArray(self.path, self.column.dtype, shape, start)

    @property
    def sums(self) -> MappedArray:
        return MappedArray(self.sums_path, "<u8", (self._rows,), _SHA256_BYTES)

    @property
    def ready(self) -> bool:
        """Whether the file is in the cache and was checked."""
        return self._is_whole and size(self.sums_path) == self.sums_bytes

    @property
    def sums_bytes(self) -> int:
        """The size of the file with the sums."""
        return _SHA256_BYTES + 8 * self._rows

    @property
    def is_its_own(self) -> bool:
        """Whether the file is ready, and its sums are not those of another file that lies here instead."""
        if not self.ready:
            return False
        with open(self.sums_path, "rb") as file:
            return file.read(_SHA256_BYTES) == bytes.fromhex(self.file.sha256)

    def check(self, beat: Beat) -> bool:
        """Whether the file in the cache has the content that the manifest demands; if so it is ready from now
        on."""
        if not self._is_whole or self.path.is_symlink():
            return False
        sums = self._passing()
        content = digest(sums.passing(_beating(locate(str(self.path)), beat)))
        if content == self.file.content:
            self._keep(sums)
        return content == self.file.content

    def bring(self, source: Place, beat: Beat) -> None:
        """Get the file from ``source``, if need be at a second try. Raises ``DataError`` if it is damaged
        there."""
        try:
            self._bring_once(source, beat)
        except DataError:
            self._bring_once(source, beat)

    def takes_space(self, source: Place) -> bool:
        """Whether the file is copied if it comes from ``source``: a clone and a reference take no space."""
        if not source.local:
            return True
        return os.stat(os.path.realpath(source.path)).st_dev != os.stat(self.path.parent).st_dev

    def _bring_once(self, source: Place, beat: Beat) -> None:
        sums = self._passing()
        with replacing(str(self.path)) as temporary:
            cloned = _cloned(source, temporary)
            self._mark(cloned=cloned)
            if cloned or _referred(source, temporary):
                content = digest(sums.passing(_beating(locate(temporary), beat)))
            else:
                with open(temporary, "xb", opener=as_its_folder) as file:
                    content = pour(sums.passing(_beating(source, beat)), file)
            if content != self.file.content:
                raise DataError(
                    f"{source} is damaged: expected {self.file.content}, found {content}, twice; "
                    "restore the file, or prepare the dataset again at another place"
                )
        self._keep(sums)

    def _mark(self, *, cloned: bool) -> None:
        """Say beside the file whether it is a clone: nothing else does."""
        mark = self.path.with_suffix(CLONE)
        if cloned:
            mark.touch()
        else:
            mark.unlink(missing_ok=True)

    def _passing(self) -> RowSums:
        if self.offsets is None:
            return EqualRowSums(self.array.offset, self.length, self._item_bytes)
        return RaggedRowSums(self.array.offset, self._offsets_file(self.offsets).load() * self._item_bytes)

    def _keep(self, sums: RowSums) -> None:
        with (
            replacing(str(self.sums_path)) as temporary,
            open(temporary, "xb", opener=as_its_folder) as file,
        ):
            file.write(bytes.fromhex(self.file.sha256) + sums.sums.astype("<u8").tobytes())

    @property
    def _is_whole(self) -> bool:
        """Whether a file of the right size is here, may be read, and is ours alone: one with a second name is
        not."""
        if size(self.path) != self.file.bytes or not os.access(self.path, os.R_OK):
            return False
        return self.path.is_symlink() or self.path.stat().st_nlink == 1

    @property
    def _rows(self) -> int:
        """How many sums there are."""
        return self.length if self.offsets is None else self.offsets.length - 1

    @property
    def _item_bytes(self) -> int:
        return np.dtype(self.column.dtype).itemsize * math.prod(self.column.shape)


def cached_columns(
    folder: Path, columns: Iterable[Column], partition: PartitionFiles
) -> Iterator[CachedColumn]:
    """A partition's files in the cache's ``folder``, offsets before their values. File names are our own: a
    manifest from elsewhere cannot point out of the cache."""
    files = enumerate(partition.files)
    for column in columns:
        at, file = next(files)
        path = folder / f"{at:03d}.npy"
        if column.kind == "rows":
            yield CachedColumn(path, partition.rows, column, file)
            continue
        offsets = CachedColumn(path, partition.rows + 1, Column(column.name, OFFSETS, ()), file)
        yield offsets
        at, file = next(files)
        yield CachedColumn(folder / f"{at:03d}.npy", file.length or 0, column, file, offsets)


def _cloned(source: Place, path: str) -> bool:
    """Whether ``path`` could become a clone of the file: it takes no space, and to change one does not change
    the other."""
    if not source.local:
        return False
    try:
        with open(source.path, "rb") as theirs, open(path, "xb", opener=as_its_folder) as ours:
            fcntl.ioctl(ours, _FICLONE, theirs.fileno())
    except OSError:
        with suppress(FileNotFoundError):
            os.unlink(path)
        return False
    return True


def _referred(source: Place, path: str) -> bool:
    """Whether ``path`` could become a reference to the file, which is then read in place: one on the
    cache's own file system, so that a copy would be no nearer."""
    if not source.local:
        return False
    real = os.path.realpath(source.path)
    if os.stat(real).st_dev != os.stat(os.path.dirname(path)).st_dev:
        return False
    os.symlink(real, path)
    return True


def size(path: Path) -> int:
    """The file's size in bytes; -1 if it cannot be reached. Fetching it then shows why."""
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _beating(place: Place, beat: Beat) -> Iterator[bytes]:
    for chunk in chunks(place):
        beat()
        yield chunk
