"""What is private to CPython and used in this folder. Tried with Python 3.11.

An interpreter that keeps them elsewhere is noticed by a trial; it is then slower, and as exact.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

_TYPE_VERSION = 384
"""The offset of ``tp_version_tag``: another number after each change of a class or of one that it is derived
from."""
_DICT_VERSION = 24
"""The offset of ``ma_version_tag``: another number after each change of a dictionary."""


def environment() -> dict[bytes, bytes]:
    """The environment, encoded. A copy of ``os.environ`` would decode it, for more than all else costs."""
    data: Any = os.environ
    return dict(data._data)


def versions_of(owners: Sequence[Any]) -> Callable[[], list[Any]]:
    """A function that returns a number for each of the classes and modules ``owners``: it is another one
    after each change of what they define. ``None``, or 0 for a single one, stands for an unknown number."""
    if not _numbered():
        return lambda: [None] * len(owners)
    numbers = [_number(owner) for owner in owners]
    value = attrgetter("value")
    return lambda: list(map(value, numbers))


def _number(owner: Any) -> Any:
    if isinstance(owner, type):
        getattr(owner, "__init__", None)  # a class gets a number when something is looked up in it
        return ctypes.c_uint32.from_address(id(owner) + _TYPE_VERSION)
    return ctypes.c_uint64.from_address(id(vars(owner)) + _DICT_VERSION)


def _numbered() -> bool:
    """Whether this interpreter keeps the numbers there."""

    class Tried:
        pass

    table: dict[str, int] = {}
    of_class = ctypes.c_uint32.from_address(id(Tried) + _TYPE_VERSION)
    of_table = ctypes.c_uint64.from_address(id(table) + _DICT_VERSION)
    seen = []
    for value in range(3):
        Tried.value = value  # type: ignore[attr-defined]
        table["value"] = value
        seen.append((of_class.value, of_table.value))
        getattr(Tried, "value")  # noqa: B009
        seen.append((of_class.value, of_table.value))
    classes, tables = zip(*seen, strict=True)
    unchanged = (of_class.value, of_table.value) == seen[-1]
    return unchanged and classes[::2] == (0, 0, 0) and len({*classes}) == 4 and len({*tables}) == 3


_SET_MASK, _SET_TABLE = 32, 40
"""The offsets of a set's ``mask`` (its places less one) and ``table``: of pairs of an item and its hash."""
GONE = -1
"""In place of the hash of an item that was removed: no hash has this value."""
_LINEAR_PROBES, _PERTURB_SHIFT = 9, 5


def table(present: set[Any] | frozenset[Any]) -> NDArray[np.int64] | None:
    """The table of a set, of shape (places, 2): the address of an item, or 0, and its hash, which is ``GONE``
    where an item was removed. ``None`` if this interpreter keeps it elsewhere."""
    if not _keeps_sets_so():
        return None
    size = ctypes.c_ssize_t.from_address(id(present) + _SET_MASK).value + 1
    start = ctypes.c_void_p.from_address(id(present) + _SET_TABLE).value
    assert start is not None
    return np.frombuffer(ctypes.string_at(start, 16 * size), np.int64).reshape(size, 2)


def probes(key: Any, size: int) -> Iterator[int]:
    """The places in which a table of ``size`` places looks for ``key``, one after the other."""
    perturb, mask = hash(key) & ((1 << 64) - 1), size - 1
    place = perturb & mask
    while True:
        yield place
        if place + _LINEAR_PROBES <= mask:
            yield from range(place + 1, place + 1 + _LINEAR_PROBES)
        perturb >>= _PERTURB_SHIFT
        place = (place * 5 + 1 + perturb) & mask


@functools.cache
def _keeps_sets_so() -> bool:
    return sys.implementation.name == "cpython" and (3, 10) <= sys.version_info < (3, 14)
