"""Which values would be others?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np


def arrays_equal(one: Any, other: Any) -> bool:
    """Whether two plain values, or two arrays, are the same to the last bit."""
    if is_plain(one) or is_plain(other):
        return repr(one) == repr(other)
    if isinstance(one, bytes):
        return bool(one == other)
    first, second = np.asarray(one), np.asarray(other)
    if first.dtype == object:  # no array
        return one is other
    alike = first.dtype == second.dtype and first.shape == second.shape
    return alike and first.tobytes() == second.tobytes()


def value_differences(
    owner: str,
    short: Mapping[str, Any],
    long: Mapping[str, Any],
    same: Callable[[Any, Any], bool] = arrays_equal,
) -> Iterator[str]:
    """A sentence for each value of ``owner`` that differs, without a full stop."""
    for name in sorted({*short, *long}):
        before, after = short.get(name), long.get(name)
        if name not in short or name not in long or not same(before, after):
            values = f" is {before!r}, it would be {after!r}" if is_plain(before) and is_plain(after) else ""
            yield f"{owner}.{name}{values or ' would be another'}"


def is_plain(value: Any) -> bool:
    """Whether ``repr`` shows all of a value."""
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    if isinstance(value, Mapping):
        return all(map(is_plain, value.values()))
    return value is None or isinstance(value, bool | int | float | str)
