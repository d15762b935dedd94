"""Bases: the tensors of a state that training leaves as they are. They stay, while the rest hops.

A base is a file of tensors without their names: their bytes one after another, in the order of their sha256.
So models that name the same tensors differently have the same base. It is named by its own sha256, and all
checkpoints of a run share it. A host fetches it once. Each state that is loaded maps it into memory: the
processes of a host share its pages, and a process that writes into it gets its own copies of the written
pages.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.config import cache_folder
from cerebro_elastic.errors import DamagedCheckpoint
from cerebro_elastic.hop.checkpoint.manifest import ADVICE, Still
from cerebro_elastic.hop.checkpoint.tensors import Leaf, TensorSpec, memory
from cerebro_elastic.system import files
from cerebro_elastic.system.cache_space import CacheSpace, disk_space, fetched, locked, use
from cerebro_elastic.system.files import (
    CHUNK,
    Chunk,
    Content,
    Place,
    as_its_folder,
    content,
    digest,
    disk_full_raised,
    exists,
    is_full,
    make_folder,
    pour,
    remove_leftovers,
    replacing,
    settle,
    write,
)

_BASES, _BASE = "bases", "base"
_LEAST = 1 << 20
"""Bytes from which on tensors become a base."""
_ALIGNED = 64
"""Each tensor of a base begins at a multiple of this, as torch's own do."""
_OF_FILE, _SWAPPED, _PRESENT = (np.uint64(1 << bit) for bit in (61, 62, 63))
"""Bits of a page in Linux' pagemap (Documentation/admin-guide/mm/pagemap.rst)."""


class _Mapped(mmap.mmap):
    """A base in the memory of this process."""

    folder: Place
    """The folder that it comes from."""
    place: Place
    """Its file there."""
    file: tuple[str, int, int]
    """The file, its inode, and when it was last changed."""
    stays: dict[int, Still]
    """The tensors that somebody got from it, by their addresses."""

    def check(self, memory: memoryview, stay: Still) -> None:
        """Compare the bytes of a tensor with its digest: once, as long as nobody writes to the file."""
        key = (*self.file, stay)
        if key not in _checked:
            _compare(digest([memory]), self.place, stay.content)
            _checked.add(key)


_cache: tuple[Path, int | None, Callable[[], None]] | None = None
"""The folder of this host's copies, if ``keep_copies`` has set it, the most bytes of them and all partitions,
and a function to call while one is fetched."""
_held: weakref.WeakValueDictionary[int, _Mapped] = weakref.WeakValueDictionary()
"""The bases that somebody holds, by the addresses of their tensors."""
_checked: set[tuple[str, int, int, Still]] = set()
"""Tensors whose bytes have been compared with their digests: file, inode, time of its last change, tensor."""


def as_they_are(tensors: Mapping[str, Leaf]) -> dict[str, Still]:
    """Tensors on the CPU as they are now; none if together they are too small for a base."""
    if sum(tensor.nbytes for tensor in tensors.values()) < _LEAST:
        return {}
    return {name: Still(digest([bytes_of(tensor)])) for name, tensor in tensors.items() if tensor.nbytes}


def any_mapped() -> bool:
    """Whether this process holds a base."""
    return bool(_held)


def mapped_as(memory: memoryview) -> Still | None:
    """The tensor of a base that was mapped as this memory, if that is one."""
    if not len(memory):
        return None
    address = _address(memory)
    base = _held.get(address)
    found = base.stays[address] if base is not None else None
    return found if found is not None and found.content.bytes == len(memory) else None


def sha256_of(memory: memoryview) -> str:
    """The sha256 of these bytes. A tensor of a base that nobody has written to is not read."""
    still = mapped_as(memory)
    if still is not None and not _has_copied_pages(memory):
        return still.content.sha256
    return digest([memory]).sha256


def has_its_rows(whole: Leaf, rows: Leaf, start: int) -> bool:
    """Whether ``rows`` are the rows from ``start`` on of the mapped tensor ``whole`` in its base, whatever
    was written into either since."""
    memory, own = bytes_of(whole), bytes_of(rows)
    base = _held[_address(memory)]
    still = base.stays[_address(memory)]
    assert still.base is not None
    at = start * (len(memory) // len(whole))
    if not len(own) or (_address(own) == _address(memory) + at and not _has_copied_pages(own)):
        return True
    try:
        original = memoryview(_map(base.folder, still.base))[still.offset + at :]
    except (DamagedCheckpoint, FileNotFoundError):
        return False
    return _equal(own, original[: len(own)])


def bytes_of(leaf: Leaf) -> memoryview:
    """The memory of an array or tensor on the CPU, contiguous."""
    return next(memory([TensorSpec("", "uint8", (leaf.nbytes,))], {"": leaf}), memoryview(b""))


def kept(folder: Place, before: Mapping[str, Still], leaves: Mapping[str, Leaf]) -> dict[str, Still]:
    """The ``leaves`` that are as they were ``before``, in bases of the ``folder``: those that are in none yet
    are written there as another one."""
    present = {name: bytes_of(leaves[name]) for name in before.keys() & leaves.keys()}
    stays = {name: before[name] for name, each in present.items() if _unchanged(each, before[name], folder)}
    here = {base for base in _bases(stays) if exists(folder / base.sha256)}
    new = {name: still for name, still in stays.items() if still.base not in here}
    kept = {name: still for name, still in stays.items() if name not in new}
    first = {name: still for name, still in new.items() if still.base is None}
    if sum(still.content.bytes for still in first.values()) < _LEAST:
        new = {name: still for name, still in new.items() if name not in first}
    return kept | (_written(folder, new, present) if new else {})


def _written(
    folder: Place, tensors: Mapping[str, Still], memory: Mapping[str, memoryview]
) -> dict[str, Still]:
    """Write a base of these tensors, unless it is there; they then lie in it."""
    order = sorted(tensors, key=lambda name: tensors[name].content.sha256)
    data: list[Chunk] = []
    offsets, end = {}, 0
    for name in order:
        offsets[name] = end
        data += [memory[name], bytes(-len(memory[name]) % _ALIGNED)]
        end += len(memory[name]) + len(data[-1])
    base = digest(data)
    with _alone_in(folder):
        if not exists(folder / base.sha256):
            write(folder / base.sha256, data)
    settle(folder)  # also the name that another process has just given
    return {name: Still(still.content, base, offsets[name]) for name, still in tensors.items()}


def copy(source: Place, folder: Place, stays: Mapping[str, Still]) -> None:
    """Have the bases of these tensors in ``folder``, too."""
    if stays:
        with _alone_in(folder):
            for name in sorted(base.sha256 for base in _bases(stays)):
                if not exists(folder / name):
                    files.copy(source / name, folder / name)


def memory_of(folder: Place, stays: Mapping[str, Still]) -> dict[str, memoryview]:
    """Map tensors of bases into memory: writable, and seen by the caller alone.

    Raises ``DamagedCheckpoint`` if a base has other bytes, and ``FileNotFoundError`` if one is missing.
    """
    try:
        return _memory_of(folder, stays)
    except DamagedCheckpoint:
        if folder.local:
            raise
        for base in _bases(stays):  # perhaps it is the host's copy that is damaged
            _copy_of(base).unlink(missing_ok=True)
        return _memory_of(folder, stays)


def verify(folder: Place, stays: Mapping[str, Still]) -> None:
    """Raise as ``memory_of`` would on a machine that has no copy."""
    if not folder.local:
        for place in damaged(folder, stays):
            raise DamagedCheckpoint(f"{place} is damaged: its bytes are not those of its name; {ADVICE}")
    memory_of(folder, stays)


def damaged(folder: Place, stays: Mapping[str, Still]) -> list[Place]:
    """The bases that have other bytes than they should. Raises ``FileNotFoundError`` if one is missing."""
    return [folder / base.sha256 for base in _bases(stays) if content(folder / base.sha256) != base]


def _bases(stays: Mapping[str, Still]) -> set[Content]:
    return {stay.base for stay in stays.values() if stay.base is not None}


def _memory_of(folder: Place, stays: Mapping[str, Still]) -> dict[str, memoryview]:
    bases = {base: _map(folder, base) for base in _bases(stays)}
    found = {}
    for name, stay in stays.items():
        assert stay.base is not None
        base = bases[stay.base]
        memory = memoryview(base)[stay.offset : stay.offset + stay.content.bytes]
        base.check(memory, stay)
        if base.stays.setdefault(_address(memory), stay) is not stay:
            # Training one would change the other.
            raise DamagedCheckpoint(f"a checkpoint has two tensors in one place of {base.place}; {ADVICE}")
        _held[_address(memory)] = base
        found[name] = memory
    return found


def folder_of(checkpoint: Place) -> Place:
    """Where the bases of a checkpoint are."""
    return Place(checkpoint.fs, checkpoint.path.rstrip("/").rsplit("/", 3)[0]) / _BASES


def _unchanged(memory: memoryview, was: Still, folder: Place) -> bool:
    """Whether a tensor's bytes are unchanged.

    In a mapped base the kernel records the written pages. Elsewhere the bytes are compared with those of the
    base in ``folder``, or by digest.
    """
    if len(memory) != was.content.bytes:
        return False
    if was.base is not None and mapped_as(memory) == was and not _has_copied_pages(memory):
        return True
    if was.base is None or not exists(folder / was.base.sha256):
        return digest([memory]) == was.content
    return _equal(memory, memoryview(_map(folder, was.base))[was.offset : was.offset + len(memory)])


def _equal(memory: memoryview, original: memoryview) -> bool:
    return all(
        np.array_equal(np.frombuffer(memory[at : at + CHUNK], np.uint8), original[at : at + CHUNK])
        for at in range(0, len(memory), CHUNK)
    )


def _address(memory: memoryview) -> int:
    address: int = np.frombuffer(memory, np.uint8).ctypes.data
    return address


def _has_copied_pages(memory: memoryview) -> bool:
    """Whether a page of this memory is not the file's any more."""
    address = _address(memory)
    first, end = address // mmap.PAGESIZE, -(-(address + len(memory)) // mmap.PAGESIZE)
    try:
        with open("/proc/self/pagemap", "rb", buffering=0) as table:
            table.seek(first * 8)
            pages: NDArray[np.uint64] = np.frombuffer(table.read((end - first) * 8), np.uint64)
    except OSError:
        return True
    present, of_file = pages & _PRESENT != 0, pages & _OF_FILE != 0
    return len(pages) < end - first or bool(((present & ~of_file) | (pages & _SWAPPED != 0)).any())


def _map(folder: Place, expected: Content) -> _Mapped:
    place, copy = folder / expected.sha256, _copy_of(expected)
    lock = None if place.local else use(copy.parent)
    try:
        if not place.local and not copy.exists():
            _fetch(place, expected, copy)
        with open(place.path if place.local else copy, "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_size != expected.bytes:
                _compare(digest(iter(lambda: file.read(CHUNK), b"")), place, expected)
            base = _Mapped(file.fileno(), expected.bytes, access=mmap.ACCESS_COPY)
    except BaseException:
        if lock is not None:
            os.close(lock)
        raise
    if lock is not None:
        weakref.finalize(base, os.close, lock)
    base.folder, base.place = folder, place
    base.file, base.stays = (file.name, status.st_ino, status.st_mtime_ns), {}
    return base


def keep_copies(cache: Path, limit_bytes: int | None, beat: Callable[[], None]) -> None:
    """From now on this process has its host's copies in the folder ``cache``, where they and all partitions
    take at most ``limit_bytes``; ``None``: all of the disk. ``beat`` is called while one is fetched."""
    global _cache
    _cache = cache, limit_bytes, beat


def _fetch(place: Place, expected: Content, path: Path) -> None:
    """Fetch this host's copy. Of several processes one fetches it; unused files in the cache make room."""
    root, limit, beat = _copies()
    with disk_full_raised(path), locked(path.parent, beat):
        if path.exists():
            return
        if limit is not None:
            with CacheSpace(root, limit).reserved(path.parent, expected.bytes, "needed"):
                _pour(place, expected, path, beat)
            return
        try:
            _pour(place, expected, path, beat)
        except OSError as exc:
            if not is_full(exc):
                raise
            with disk_space(root).reserved(path.parent, expected.bytes, "needed"):
                _pour(place, expected, path, beat)


def _pour(place: Place, expected: Content, path: Path, beat: Callable[[], None]) -> None:
    with replacing(str(path)) as temporary:
        with open(temporary, "xb", opener=as_its_folder) as file:
            found = pour(fetched(place, beat), file)
        _compare(found, place, expected)


def _copy_of(base: Content) -> Path:
    """The path of this host's copy, in a folder like that of a partition."""
    return _copies()[0] / base.sha256 / "base-00000" / _BASE


def _copies() -> tuple[Path, int | None, Callable[[], None]]:
    return _cache or (cache_folder(os.environ), None, lambda: None)


@contextmanager
def _alone_in(folder: Place) -> Iterator[None]:
    """No other process of this host writes into a local folder meanwhile, and remains of killed ones are
    removed. Elsewhere, and where the file system has no locks, each process writes for itself."""
    if not folder.local:
        yield
        return
    make_folder(Path(folder.path))
    descriptor = os.open(folder.path, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            remove_leftovers(Path(folder.path))
        yield
    finally:
        os.close(descriptor)


def _compare(found: Content, place: Place, expected: Content) -> None:
    if found != expected:
        raise DamagedCheckpoint(f"{place} is damaged: expected {expected}, found {found}; {ADVICE}")
