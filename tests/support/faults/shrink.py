"""Delta debugging (Zeller and Hildebrandt, IEEE TSE 2002, figure 3): finds the few faults that cause a
failure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from support.faults.plan import Fault, FaultPlan


def shrink(plan: Sequence[Fault], fails: Callable[[FaultPlan], bool]) -> FaultPlan:
    """A part of ``plan``, in its order, for which ``fails`` still holds, and of which no single fault
    can be left out. ``fails`` is called for no plan twice; it must hold for ``plan``."""
    known: dict[FaultPlan, bool] = {}

    def still(part: FaultPlan) -> bool:
        if part not in known:
            known[part] = fails(part)
        return known[part]

    current, pieces = tuple(plan), 2
    if not still(current):
        raise ValueError("nothing to shrink: the plan as it is does not fail")
    while current and pieces <= len(current):
        smaller = next(filter(still, _candidates(current, pieces)), None)
        if smaller is None:
            if pieces == len(current):
                break
            pieces = min(2 * pieces, len(current))
        else:
            current, pieces = smaller, max(2, min(pieces - 1, len(smaller)))
    return () if len(current) == 1 and still(()) else current


def _candidates(plan: FaultPlan, pieces: int) -> Iterator[FaultPlan]:
    """Each of ``pieces`` parts alone, then all but one of them."""
    cuts = [len(plan) * i // pieces for i in range(pieces + 1)]
    parts = [plan[a:b] for a, b in pairwise(cuts)]
    yield from parts
    yield from (plan[:a] + plan[b:] for a, b in pairwise(cuts))
