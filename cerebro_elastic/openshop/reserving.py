"""Nodes that are kept free for critical configs.

A config that must go on at once when its unit ends, to be done by the horizon, finds a node free then: until
that time the node only takes units that are over before."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cerebro_elastic.openshop.dispatch import DispatchState, ScheduledUnit


def reserve(shop: DispatchState, visit: ScheduledUnit) -> None:
    """Have a node free when the visit ends, if its config must then go on at once."""
    i, end = visit.config, shop.due(visit)
    if (held := shop.promised.pop(i, None)) is not None:
        shop.reserved.pop(held, None)
    if end + shop.rest[i] < shop.horizon - shop.guard or not shop.rest[i]:
        return
    bit, choices = 1 << i, []
    for n, left in enumerate(shop.left):
        if left & bit and n not in shop.reserved and n not in shop.away:
            free = shop.due(shop.running[n]) if n in shop.running and n != visit.node else shop.time
            free = end if n == visit.node else free
            choices.append((max(free - end, 0.0), end - free, n))
    if choices and (best := min(choices))[0] <= shop.guard:
        shop.reserved[best[2]] = (end, i)
        shop.promised[i] = best[2]


def in_time(shop: DispatchState, n: int) -> Callable[[int], bool]:
    """Whether a config's unit on the reserved node ``n`` would be over when the node is wanted."""
    end, wanted = shop.reserved[n]
    seconds, mine, latest = shop.tables.seconds, shop.mine[n], end + max(shop.guard, 0.0) * 0.5

    def fits(i: int) -> bool:
        mask = mine[i]
        return i == wanted or shop.time + seconds[i][(mask & -mask).bit_length() - 1][n] <= latest

    return fits
