"""Sets given back in the order in which they were.

A loop over a set follows the places of its items in a table. They depend on the hashes, and on what was added
and removed before. Hashes of numbers are the same in every process. Those of texts are not, so a loop over a
set of texts differs between two ordinary fits, too, and their order is not carried.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import islice, permutations, takewhile
from operator import is_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.training._python_internals import GONE, probes, table

_FEW = 5
"""The largest number of items that are tried in all orders."""
_SMALLEST = 8
"""The places of the smallest table."""
_FILLERS = 4
"""With this many other items for each place, a table is full enough to be rebuilt when they go."""


def has_order(items: Iterable[Any]) -> bool:
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


def additions(present: set[Any] | frozenset[Any]) -> dict[str, Any]:
    """How ``rebuild`` or ``frozen`` makes a set of the same places: the numbers of its items in the order in
    which they are to be ``added``, and the ``size`` of its table. Empty if the items in their order do, or if
    nothing does. A number below 0 stands for an item that was removed from that place, counted from -1 on.
    """
    known, items = table(present), list(present)
    if known is None or _same(_made(present, items), known):
        return {}
    size, in_use = len(known), known[:, 0] != 0
    removed = known[:, 1] == GONE
    at = {place: -1 - place for place in np.flatnonzero(in_use & removed).tolist()}
    at |= {place: number for number, place in enumerate(np.flatnonzero(in_use & ~removed).tolist())}
    waits: dict[int, list[int]] = {}
    for place, number in at.items():
        path = probes(items[number], size) if number >= 0 else iter((place,))
        before = takewhile(place.__ne__, islice(path, size))
        waits[number] = [at.get(place, number) for place in before]
    try:
        order = list(TopologicalSorter(waits).static_order())
    except CycleError:
        return {}
    order.sort(key=lambda number: bool(waits[number]))  # first those that lie where they belong
    how = {"added": order, "size": size}
    return how if _same(_made(present, items, how), known) else {}


def _made(like: Any, items: Sequence[Any], how: Mapping[str, Any] | None = None) -> Any:
    if isinstance(like, frozenset):
        return frozen(items, **(how or {}))
    fresh: set[Any] = set()
    if how is None:
        refill(fresh, items)
    else:
        rebuild(fresh, items, **how)
    return fresh


def _same(present: set[Any] | frozenset[Any], known: NDArray[np.int64]) -> bool:
    """Whether the items lie in the same places, and the same places were in use."""
    own = table(present)
    return own is not None and np.array_equal(own, known)


class _Removed:
    """Takes a place until all other items have theirs."""

    def __init__(self, place: int) -> None:
        self._place = place

    def __hash__(self) -> int:
        return self._place


def _in_order(items: Sequence[Any], added: Sequence[int]) -> tuple[list[Any], list[_Removed]]:
    """What is to be added, and what of that is to be removed at last."""
    removed = [_Removed(-1 - number) for number in added if number < 0]
    others = iter(removed)
    return [items[number] if number >= 0 else next(others) for number in added], removed


def frozen(items: Sequence[Any], added: Sequence[int] = (), size: int = 0) -> frozenset[Any]:
    """A frozen set with ``items`` in their order, if it can be had; ``added`` and ``size`` as from
    ``additions``. Its table grows with the items of a list, and is as large at once as a dict needs."""
    first, removed = _in_order(items, added or range(len(items)))
    best = None
    for order in permutations(first) if len(items) <= _FEW else (first,):
        for full in (frozenset(order), frozenset(dict.fromkeys(order))):
            made = full.difference(removed) if removed else full
            if all(map(is_, made, items)):  # tensors and arrays have no truth in ``==``
                if not size or ((known := table(made)) is not None and len(known) == size):
                    return made
                best = best or made
    return best or frozenset(items)


def rebuild(present: set[Any], items: Sequence[Any], added: Sequence[int], size: int) -> None:
    """Make ``items`` those of a set with a table of ``size`` places; ``added`` as from ``additions``.

    A table that takes the keys of a dict gets more than twice as many places before. One from which many
    items are taken at once is made anew, with more than four times the places of what is left: that lies
    where it belongs, whatever the order.
    """
    order, removed = _in_order(items, added)
    set.clear(present)
    first = 0
    if 4 * len(order) >= size > _SMALLEST:
        first = size // 2 - 1
        set.update(present, dict.fromkeys(order[:first]))
    elif size > _SMALLEST:
        first = size // 8
        fillers = [object() for _ in range(_FILLERS * size)]
        set.update(present, fillers)
        _add(present, order[:first])
        set.difference_update(present, fillers)
    _add(present, order[first:])
    for item in removed:
        set.discard(present, item)


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
