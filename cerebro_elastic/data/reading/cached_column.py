"""A column of a partition in the cache: how its file gets there, and when it may be used."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from cerebro_elastic.data.made_partition import numbered
from cerebro_elastic.data.manifest import Column, ColumnFile, PartitionFiles
from cerebro_elastic.data.ragged import OFFSETS, Index, Ragged, check_offsets
from cerebro_elastic.data.reading.partition import Array, forget_checks
from cerebro_elastic.data.reading.row_sums import EqualRowSums, RaggedRowSums, RowSums, Sums, row_sums
from cerebro_elastic.errors import DamagedData, DataError
from cerebro_elastic.system.cache_space import CLONE, SUMS, fetched
from cerebro_elastic.system.files import Place, as_its_folder, digest, locate, pour, replacing

Beat = Callable[[], None]

_SHA256_BYTES = 32
"""Of the sha256 that a file of sums begins with."""
_KEPT = 16
"""The number of columns whose offsets are kept for the next batch of a process that makes batches."""
_FICLONE = 0x40049409
"""``ioctl`` of Linux: a separate file that shares its blocks with another until one of them is written."""


@dataclass(frozen=True, slots=True)
class CachedColumn:
    """A ``.npy`` file of a column in the cache.

    The sums of its rows lie beside it, behind that sha256. They are written last, from the bytes whose sha256
    was checked: a file with sums has been checked, by any process of the host. A process that finds damage
    removes the sums of the partition.
    """

    path: Path
    length: int
    """The length of its array: the partition's rows, or the number of values or offsets of a column of
    varying lengths."""
    column: Column
    file: ColumnFile
    """The content that the manifest demands."""
    offsets: CachedColumn | None = None
    """If these are the values of a column of varying lengths: the file of its offsets."""

    @property
    def sums_path(self) -> Path:
        return self.path.with_suffix(SUMS)

    def open(self, *, again: bool = False) -> Array | Ragged:
        """The column, memory-mapped. Raises ``DamagedData`` if its offsets have changed since they were
        checked, ``DataError`` if they can be none. ``again``: offsets that this process has loaded are not
        looked at once more."""
        shape = (self.length, *self.column.shape)
        array: Array = np.memmap(self.path, self.column.dtype, "r", self._start, shape)
        if self.offsets is None:
            return array
        return Ragged(array, _kept_offsets(self) if again else self.load_offsets(), self.column.kind)

    def load_offsets(self) -> Index:
        """The offsets of a column of varying lengths, in memory."""
        assert self.offsets is not None
        offsets: Index = np.array(self.offsets.open())
        name = f"the offsets {self.offsets.path} of column {self.column.name!r}"
        if row_sums(offsets).tobytes() != self.offsets.open_sums().tobytes():
            forget_checks(self.path.parent)
            raise DamagedData(f"{name} have changed since they were checked: they are fetched again")
        check_offsets(offsets, self.length, name)
        return offsets

    def open_sums(self) -> Sums:
        """The sums of its rows, memory-mapped."""
        return np.memmap(self.sums_path, "<u8", "r", _SHA256_BYTES, (self._rows,))

    @property
    def _start(self) -> int:
        """The array's offset, by the manifest: the file's own header is not trusted."""
        return self.file.bytes - self.length * self.column.row_bytes

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
        content = digest(sums.passing(fetched(locate(str(self.path)), beat)))
        if content == self.file.content:
            self._keep(sums)
        return content == self.file.content

    def taken_in(self, beat: Beat) -> CachedColumn:
        """The file as it was just made here, with the digest that it has. It is ready from now on."""
        sums = self._passing()
        content = digest(sums.passing(fetched(locate(str(self.path)), beat)))
        taken = replace(self, file=replace(self.file, sha256=content.sha256))
        taken._keep(sums)
        return taken

    def bring(self, source: Place, beat: Beat) -> None:
        """Get the file from ``source``, if need be at a second try. Raises ``DataError`` if it is damaged
        there."""
        try:
            self._bring_once(source, beat)
        except DataError:
            self._bring_once(source, beat)

    def takes_space(self, source: Place) -> bool:
        """Whether the file is copied if it comes from ``source``: a clone and a reference take no space."""
        return not _lies_beside(source, self.path)

    def _bring_once(self, source: Place, beat: Beat) -> None:
        sums = self._passing()
        with replacing(str(self.path)) as temporary:
            cloned = _cloned(source, temporary)
            mark = self.path.with_suffix(CLONE)  # nothing else says that a file is a clone
            if cloned:
                mark.touch()
            else:
                mark.unlink(missing_ok=True)
            if cloned or _referred(source, temporary):
                content = digest(sums.passing(fetched(locate(temporary), beat)))
            else:
                with open(temporary, "xb", opener=as_its_folder) as file:
                    content = pour(sums.passing(fetched(source, beat)), file)
            if content != self.file.content:
                raise DataError(
                    f"{source} is damaged: expected {self.file.content}, found {content}, twice; "
                    "restore the file, or prepare the dataset again at another place"
                )
        self._keep(sums)

    def _passing(self) -> RowSums:
        if self.offsets is None:
            return EqualRowSums(self._start, self.length, self.column.row_bytes)
        return RaggedRowSums(self._start, self.load_offsets() * self.column.row_bytes)

    def _keep(self, sums: RowSums) -> None:
        with (
            replacing(str(self.sums_path)) as temporary,
            open(temporary, "xb", opener=as_its_folder) as file,
        ):
            file.write(bytes.fromhex(self.file.sha256) + sums.sums.astype("<u8").tobytes())

    @property
    def _is_whole(self) -> bool:
        """Whether a file of the right size is here, and may be read."""
        return size(self.path) == self.file.bytes and os.access(self.path, os.R_OK)

    @property
    def _rows(self) -> int:
        """The number of sums."""
        return self.length if self.offsets is None else self.offsets.length - 1


@lru_cache(_KEPT)
def _kept_offsets(column: CachedColumn) -> Index:
    return column.load_offsets()


def cached_columns(
    folder: Path, columns: Iterable[Column], partition: PartitionFiles
) -> Iterator[CachedColumn]:
    """A partition's files in the cache's ``folder``, offsets before their values. File names are our own: a
    manifest from elsewhere cannot point out of the cache."""
    paths = (folder / numbered(at) for at in range(len(partition.files)))
    for column, (*offsets_file, file) in partition.by_column(columns):
        if not offsets_file:
            yield CachedColumn(next(paths), partition.rows, column, file)
            continue
        described = Column(column.name, OFFSETS, ())
        offsets = CachedColumn(next(paths), partition.rows + 1, described, offsets_file[0])
        yield offsets
        yield CachedColumn(next(paths), file.length or 0, column, file, offsets)


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
    if not _lies_beside(source, Path(path)):
        return False
    os.symlink(os.path.realpath(source.path), path)
    return True


def _lies_beside(source: Place, path: Path) -> bool:
    """Whether the file is on the file system of ``path``."""
    return source.local and os.stat(os.path.realpath(source.path)).st_dev == os.stat(path.parent).st_dev


def size(path: Path) -> int:
    """The file's size in bytes; -1 if it cannot be reached. Fetching it then shows why."""
    try:
        return path.stat().st_size
    except OSError:
        return -1
