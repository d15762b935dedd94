"""Units that change their owner: with replicas, a node with nothing left that it could do takes another's
(the target rule)."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cerebro_elastic.openshop.dispatch import DispatchState, Rule


def steal(shop: DispatchState, n: int, rule: Rule) -> tuple[int, int] | None:
    """Take over a unit (config, partition) for node ``n`` from the most loaded node that has one which ``n``
    could do in time, rather on a partition that it holds than on one that it would fetch; the unit's config
    is idle no longer."""
    owners = sorted(range(len(shop.load)), key=lambda a: -(inf if a in shop.away else shop.load[a]))
    for takeable in (shop.held[n], shop.tables.fetched & ~shop.held[n]):
        for a in owners if takeable else ():
            if a != n and (found := _one_of(shop, a, n, takeable)) is not None:
                rule.remove(found[0])
                shop.hand_over(*found, n)
                return found
    return None


def _one_of(shop: DispatchState, a: int, n: int, takeable: int) -> tuple[int, int] | None:
    """A unit of node ``a`` that node ``n`` could do in time, and sooner, on a partition of these."""
    seconds, least = shop.tables.seconds, shop.tables.least
    before = inf if a in shop.away else shop.load[a]
    takeable &= shop.held[a] | shop.tables.fetched
    configs = shop.left[a] & shop.resting if takeable and before > shop.load[n] else 0
    while configs:
        i = (configs & -configs).bit_length() - 1
        configs &= configs - 1
        mask = shop.mine[a][i] & takeable
        while mask:
            j = (mask & -mask).bit_length() - 1
            mask &= mask - 1
            cost = seconds[i][j][n] + (0.0 if shop.held[n] >> j & 1 else shop.tables.fetch[j])
            end = shop.time + cost + shop.fastest[i] - least[i][j]
            if end <= shop.horizon and shop.load[n] + cost < before:
                return i, j
    return None
