"""The space that a host's cache may take: before a partition is fetched, others are dropped to make room.

Copies of bases (``hop/checkpoint/bases.py``) lie among the partitions and count as such. Made batches and
opened rows (``made_once.py``) lie in folders like partitions, in a separate space.

Every process that has a partition open holds a shared lock on the file ``use`` in the partition's folder. A
partition is dropped only under an exclusive lock; the kernel releases the locks of a killed process. The time
of the file is when the partition was last requested: the one requested longest ago goes first.

References to a dataset on the same file system and clones take no space, and do not count.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from cerebro_elastic.errors import StorageError
from cerebro_elastic.system.files import Place, as_its_folder, chunks, make_folder, remove_leftovers
from cerebro_elastic.system.process import try_lock

Room: TypeAlias = Literal["needed", "next", "spare"]
"""Why a partition is fetched. A ``needed`` one comes in any case, a ``next`` one if others can be dropped for
it, and a ``spare`` one if room is left without that."""

SUMS = ".sums"
"""The suffix of the file with the row sums of a column. It begins with the sha256 of the column's file."""
CLONE = ".clone"
"""The suffix of a file that marks the column of its name as a clone."""
_USE, _LOCK, _RESERVED = "use", "lock", "reserved"
_LOOK_SECONDS = 0.05
_SPARE_BYTES = 1 << 20
"""The bytes left on a disk for the file system itself."""
_DIGEST = "[0-9a-f]" * 64


class NoRoom(StorageError):
    """The cache has no room for data that are not needed yet."""


def use(folder: Path) -> int:
    """Mark the partition in ``folder`` as in use, until the file descriptor that is returned is closed."""
    make_folder(folder)
    try:
        lock = _open(folder)
    except OSError:  # a cache that is only read: no process like this one drops anything from it
        lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)  # a process that drops the partition is done soon
        with suppress(OSError):
            os.utime(lock)
    except BaseException:
        os.close(lock)
        raise
    return lock


@contextmanager
def locked(folder: Path, beat: Callable[[], None]) -> Iterator[None]:
    """Lock the folder for this process, and remove the remains of a killed one. While it waits, it calls
    ``beat`` only as long as the other process's files grow: a fetch that hangs is a hang for both."""
    make_folder(folder)
    bytes_before = -1
    with open(folder / "lock", "w", opener=as_its_folder) as lock:
        while not try_lock(lock):
            if (by_now := sum(map(_size_of, folder.iterdir()))) != bytes_before:
                bytes_before = by_now
                beat()
            time.sleep(_LOOK_SECONDS)
        remove_leftovers(folder)
        yield


def _size_of(file: Path) -> int:
    with suppress(OSError):  # removed by another process
        return file.stat().st_size
    return 0


def fetched(place: Place, beat: Callable[[], None]) -> Iterator[bytes]:
    """The file's bytes, front to back; ``beat`` is called for each piece."""
    for chunk in chunks(place):
        beat()
        yield chunk


@dataclass(frozen=True, slots=True)
class CacheSpace:
    """The space of the cache under ``root``, for the processes of a host."""

    root: Path
    """The cache's folder."""
    limit_bytes: int
    """The most bytes of all partitions in it together."""
    may_go: Callable[[Path], bool] = lambda _folder: True
    """Whether the partition in a folder may be dropped for another."""

    @contextmanager
    def reserved(self, folder: Path, size: int, room: Room) -> Iterator[None]:
        """Within the block the partition in ``folder``, which is in use, may grow up to ``size`` bytes.

        Raises ``NoRoom`` if other partitions take the space and may not be dropped.
        """
        with self._alone():
            self._make_room(folder, size, room)
            _reserve(folder, size)
        try:
            yield
        finally:
            with suppress(FileNotFoundError):
                (folder / _RESERVED).unlink()

    def reserve(self, folder: Path, size: int) -> int:
        """Let ``folder`` grow up to ``size`` bytes as long as it is in use, or as far as the limit allows;
        returns the granted bytes."""
        with self._alone():
            granted = size - max(0, self._make_room(folder, size, "needed"))
            _reserve(folder, granted)
        return granted

    def _make_room(self, folder: Path, size: int, room: Room) -> int:
        """Drop unused partitions until the room suffices. Returns the bytes that are still missing."""
        sizes = {other: _size(other) for other in self.root.glob(f"{_DIGEST}/*-*") if other != folder}
        excess = sum(sizes.values()) + size - self.limit_bytes
        if excess > 0 and room == "spare":
            raise NoRoom(f"the cache {self.root} has no room left for a replica")
        dropped: dict[Path, int] = {}
        try:
            for other in sorted(filter(sizes.get, sizes), key=_last_used):
                if excess <= 0:
                    break
                if self.may_go(other) and (lock := _alone_in(other)) is not None:
                    dropped[other] = lock
                    excess -= sizes[other]
            if excess > 0 and room == "next":
                raise NoRoom(f"the cache {self.root} has no room for the next partition: others are in use")
            for other in dropped:
                _drop(other)
            return excess
        finally:
            for lock in dropped.values():
                os.close(lock)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Within the block no other process makes room."""
        with open(self.root / _LOCK, "w", opener=as_its_folder) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def disk_space(root: Path) -> CacheSpace:
    """The space of a cache on a full disk: that of its partitions, and the free rest."""
    taken = sum(map(_size, root.glob(f"{_DIGEST}/*-*")))
    return CacheSpace(root, max(0, taken + shutil.disk_usage(root).free - _SPARE_BYTES))


def _reserve(folder: Path, size: int) -> None:
    with open(folder / _RESERVED, "w", opener=as_its_folder) as file:
        file.write(str(size))


def _size(folder: Path) -> int:
    """The bytes that a partition takes, or will take once it is fetched."""
    try:
        files = {path.name: path.lstat() for path in folder.iterdir() if not path.is_symlink()}
    except FileNotFoundError:
        return 0
    clones = {name.removesuffix(CLONE) + ".npy" for name in files if name.endswith(CLONE)}
    present = sum(stat.st_size for name, stat in files.items() if name not in clones | {_RESERVED})
    if _RESERVED in files and (lock := _alone_in(folder)) is None:  # else its process was killed
        with suppress(FileNotFoundError, ValueError):
            return max(present, int((folder / _RESERVED).read_text()))
    elif _RESERVED in files:
        assert lock is not None
        os.close(lock)
    return present


def _last_used(folder: Path) -> int:
    try:
        return (folder / _USE).stat().st_mtime_ns
    except FileNotFoundError:  # removed by another process
        return 0


def _alone_in(folder: Path) -> int | None:
    """The lock of a partition that nobody uses; ``None`` if somebody does."""
    try:
        lock = _open(folder)
    except OSError:  # another user's
        return None
    if try_lock(lock):
        return lock
    os.close(lock)
    return None


def _open(folder: Path) -> int:
    return os.open(folder / _USE, os.O_RDWR | os.O_CREAT, os.stat(folder).st_mode & 0o666)


def _drop(folder: Path) -> None:
    """Remove a partition. The sums go first: without them the rest is no partition."""
    kept = {_USE, _LOCK}
    for path in sorted(folder.iterdir(), key=lambda path: path.suffix != SUMS):
        if path.name not in kept:
            with suppress(OSError):
                path.unlink()
