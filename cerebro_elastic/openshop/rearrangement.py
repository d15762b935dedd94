"""Vector rearrangement (paper, section 5.2; Sevast'janov 1994, Geometric methods in scheduling theory).

A config is a vector of its seconds on each node. The configs are put into such an order that, after any
number of them, all nodes have had about the same work (partial sums of vectors with sum 0 stay small:
Steinitz). Every node then goes round that order, each from another place, so far apart that no two ever want
the same config: no node waits. That is optimal if ``L_max >= (p^2 + p - 1) T_max``; else nodes may meet, and
the node that comes second takes its next config.

The order is found greedily (each time the config that leaves the sums smallest), which keeps them small in
practice but without Sevast'janov's guarantee."""

from __future__ import annotations

import numpy as np

from cerebro_elastic.openshop.instances import Instance


def rearranged(instance: Instance) -> list[list[int]]:
    """``[N][C]``: the order in which each node goes through the configs."""
    vectors = instance.durations if instance.durations.ndim == 2 else instance.durations.mean(axis=1)
    # Dummy work makes the nodes' loads equal: here the same share of it follows each config.
    missing = (vectors.sum(axis=0).max() - vectors.sum(axis=0)) / len(vectors)
    vectors = vectors + missing
    centred = vectors - vectors.mean(axis=1, keepdims=True)
    order, total, left = [], np.zeros(instance.nodes), list(range(len(vectors)))
    while left:
        sums = np.linalg.norm(total + centred[left], axis=1)
        config = left.pop(int(sums.argmin()))
        order.append(config)
        total += centred[config]
    work = np.cumsum(vectors.mean(axis=1)[order])
    starts = np.searchsorted(work, work[-1] * np.arange(instance.nodes) / instance.nodes, side="left")
    return [order[k:] + order[:k] for k in starts % len(order)]
