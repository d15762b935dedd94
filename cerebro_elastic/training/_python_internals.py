"""What is private to CPython and used in this folder. Tried with Python 3.11.

An interpreter that keeps them elsewhere is noticed by a trial; it is then slower, and as exact.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

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
