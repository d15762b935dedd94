"""Sets given back in the order in which they were.

A loop over a set follows the places of its items in a table. They depend on the hashes, and on what was added
and removed before. Hashes of numbers are the same in every process. Those of texts are not, so a loop over a
set of texts differs between two ordinary fits, too, and their order is not carried.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import permutations
from typing import Any

_FEW = 5
"""So many items are tried in all orders."""


def has_order(items: Sequence[Any]) -> bool:
    """Whether the order of a set of ``items`` is the same in every process that has the same past."""
    return all(map(_has_fixed_hash, items))


def refill(present: set[Any], items: Sequence[Any] | set[Any], *, as_new: bool = False) -> None:
    """Make ``items`` the items of ``present``, in their order if they can have it.

    What stays in ``present`` keeps its place: a set from which training only removes items keeps its order.
    A set that is ``as_new`` has no past: ``pop`` begins at its first item.
    """
    wanted = list(items)
    if as_new:
        _forget_pops(present, len(wanted))
    for gone in set.difference(present, wanted):
        set.discard(present, gone)
    _add(present, wanted)
    if isinstance(items, set):
        return
    for order in permutations(wanted) if len(wanted) <= _FEW else (wanted, wanted[::-1]):
        if list(present) == wanted:
            return
        set.clear(present)
        _add(present, order)


def _forget_pops(present: set[Any], size: int) -> None:
    """Empty a set. ``pop`` goes on behind the place of the last item that it took, modulo the size of the
    table: so take one from the last place of a table that is larger than any that ``size`` items need."""
    last = (1 << (8 * size + 64).bit_length()) - 1
    set.clear(present)
    set.update(present, range(last // 2))  # the table grows beyond ``last``, to a power of two
    places = (sys.getsizeof(present) - sys.getsizeof(set())) // 16
    for item in range(last // 2):  # one by one: difference_update makes the table small
        set.discard(present, item)
    set.add(present, places - 1)
    set.pop(present)
    set.clear(present)


def _add(present: set[Any], items: Iterable[Any]) -> None:
    for item in items:  # one by one: the table grows as it has grown
        set.add(present, item)


def _has_fixed_hash(item: Any) -> bool:
    return isinstance(item, int | float | complex) or (isinstance(item, tuple) and has_order(item))
