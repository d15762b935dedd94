"""The choice of whole groups whose rows come as near as possible to a number of rows of each class."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_PASSES = 20
"""The most times that all groups are looked at again."""
_MOST_MOVED = 5_000
"""The largest number of groups that are moved one by one; if there are more, any groups make up for the last
rows."""
_MOST_SWAPPED = 500
"""The largest number of groups of which two are also exchanged."""

Table = NDArray[np.int64]


def choose_groups(table: Table, wanted: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which groups to hold out.

    The first groups are taken until there are enough rows. Then single groups, or pairs of them, are moved as
    long as that brings the number of rows of a class nearer to what is wanted.

    Args:
        table: The rows of each class that a group has; shape (groups, classes). The groups are in a shuffled
            order.
        wanted: The rows of each class to hold out.

    Returns:
        A mask of the groups. It holds out at least one group, and leaves a row of each class, if any choice
        that was looked at does.
    """
    chooser = _Chooser(table, wanted)
    for _ in range(_PASSES):
        moved = chooser.move_single()
        if len(table) <= _MOST_SWAPPED:
            moved |= chooser.swap_pairs()
        if not moved:
            break
    return chooser.chosen if chooser.chosen.any() else chooser.nearest_single()


class _Chooser:
    def __init__(self, table: Table, wanted: NDArray[np.int64]) -> None:
        self._table, self._wanted = table, wanted
        self._total = table.sum(axis=0)
        self.chosen = np.cumsum(table.sum(axis=1)) <= wanted.sum()
        self._sum = table[self.chosen].sum(axis=0)

    def move_single(self) -> bool:
        """Hold out a group, or no longer, where that is better."""
        moved = False
        for at in range(min(len(self._table), _MOST_MOVED)):
            other = self._sum + (-self._table[at] if self.chosen[at] else self._table[at])
            if self._cost(other) < self._cost(self._sum):
                self.chosen[at] ^= True
                self._sum, moved = other, True
        return moved

    def swap_pairs(self) -> bool:
        """Exchange a group that is held out for another one, where that is better."""
        moved = False
        for at in np.flatnonzero(self.chosen):
            outside = np.flatnonzero(~self.chosen)
            if not len(outside):
                break
            others = self._sum - self._table[at] + self._table[outside]
            costs = self._cost(others)
            best = int(np.argmin(costs))
            if costs[best] < self._cost(self._sum):
                self.chosen[[at, outside[best]]] = False, True
                self._sum, moved = others[best], True
        return moved

    def nearest_single(self) -> NDArray[np.bool_]:
        """The best single group; none if each has the last rows of a class."""
        mask = np.zeros(len(self._table), bool)
        spared = ~(self._table >= self._total).any(axis=1)
        if spared.any():
            costs = np.where(spared, self._cost(self._table), np.inf)
            mask[int(np.argmin(costs))] = True
        return mask

    def _cost(self, sums: Table) -> NDArray[np.float64]:
        """How far ``sums``, of shape (..., classes), are from what is wanted. To take the last row of a class
        is worse than anything else."""
        far = ((sums - self._wanted) ** 2).sum(axis=-1)
        emptied = (sums >= self._total).sum(axis=-1)
        return np.asarray(far + emptied * float(self._total.sum() + 1) ** 2 * 4)
