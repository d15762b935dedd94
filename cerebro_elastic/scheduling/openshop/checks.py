"""Checks of the planner's input. Text, truth values and numbers that would overflow in a sum are refused."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.errors import ScheduleError, did_you_mean

Array: TypeAlias = NDArray[np.float64]

LARGEST = 1e12
"""The largest number: as seconds some 30,000 years. No sum over ``MOST_UNITS`` comes near to an overflow."""
MOST_UNITS = 100_000_000
"""The most units of one problem."""
LONGEST_SEARCH = 1e6
"""The most seconds of a search for a better schedule: more than eleven days."""
LARGEST_SEED = 2**31 - 1
"""The largest seed that CP-SAT takes."""


def numbers(values: Any, name: str, infinite: bool = False, truths: bool = False) -> Array:
    """``values`` as numbers of at least 0 and at most ``LARGEST`` (not copied if they are floats already);
    with ``infinite`` also infinity, with ``truths`` also true and false."""
    given = floats(values, name, truths)
    # Two passes without a mask of the array's size, which may be large; a NaN makes min and max NaN.
    least, most = (given.min(), given.max()) if given.size else (0.0, 0.0)
    if least >= 0 and most <= LARGEST:
        return given
    wrong = ~((given >= 0) & (given <= LARGEST) | np.isposinf(given) & infinite)
    if not wrong.any():
        return given
    where = tuple(int(k) for k in np.argwhere(wrong)[0])
    place = f"{name}{list(where)}" if where else name
    raise ScheduleError(
        f"{place} is {given[where]}; it must be a finite number of at least 0 and at most {LARGEST:g}"
        + (", or infinite" if infinite else "")
    )


def number(value: Any, name: str, most: float = LARGEST, infinite: bool = False) -> float:
    """``value`` as one number of at least 0 and at most ``most``; with ``infinite`` also infinity."""
    if not _is_number(value) or not (0 <= value <= most or (infinite and value == np.inf)):
        raise ScheduleError(
            f"{name} is {value!r}; it must be a finite number of at least 0 and at most {most:g}"
            + (", or infinite" if infinite else "")
        )
    return float(value)


def whole(value: Any, name: str, least: int, most: int) -> int:
    """``value`` as one whole number from ``least`` to ``most``."""
    integral = isinstance(value, Integral) and not isinstance(value, bool)
    if not integral or not least <= value <= most:
        raise ScheduleError(f"{name} is {value!r}; it must be a whole number from {least} to {most}")
    return int(value)


def one_of(name: Any, choices: tuple[str, ...], kind: str) -> None:
    """Raise ``ScheduleError`` if ``name`` is not the name of a ``kind``."""
    if not isinstance(name, str) or name not in choices:
        raise ScheduleError(f"no {kind} {name!r} exists; {did_you_mean(str(name), choices)}")


def floats(values: Any, name: str, truths: bool = False) -> Array:
    """``values`` as numbers of any size; with ``truths`` also true and false."""
    try:
        # A list's numbers are checked one by one: an array of them would hide their types.
        given = np.asarray(values) if hasattr(values, "__array__") else np.asarray(values, dtype=object)
        if given.dtype.kind == "O":
            for value in given.flat:
                if not _is_number(value) and not (truths and isinstance(value, bool | np.bool_)):
                    content = "rows of different lengths" if isinstance(value, list | tuple) else repr(value)
                    raise ScheduleError(f"{name} is not an array of numbers: it contains {content}")
        elif given.dtype.kind not in ("iufb" if truths else "iuf"):
            raise ScheduleError(f"{name} is not an array of numbers, but one of {given.dtype}")
        return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as exc:
        raise ScheduleError(f"{name} is not an array of numbers: {exc}") from exc


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
