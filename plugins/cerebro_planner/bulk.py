"""Open shops of millions of units: one pass, a few microseconds and about five bytes a unit.

Each node goes round the configs, from its own starting point, and takes the next idle one that is not done
there. So all configs progress evenly, and the last units of a node belong to many configs. Configs so long
that they might become the tail come first, the longest before the others. With millions of units the rest is
fine-grained enough: the loss at the end is a few units of thousands."""

from __future__ import annotations

from array import array
from bisect import insort
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.extending.planning import Instance, lower_bound

LONG = 0.5
"""The share of the lower bound from which on a config's length makes it urgent."""
LOOKS = 24
"""How many urgent configs a node looks at, the longest first."""


def suits(instance: Instance) -> bool:
    """Whether ``Bulk`` can schedule it: one epoch of an open shop, partition ``j`` on node ``j``."""
    return bool(
        instance.nodes == instance.partitions
        and instance.durations.ndim == 2
        and not instance.replicated
        and instance.availability.diagonal().all()
        and (instance.sizes == 1).all()
        and (instance.epochs == 1).all()
        and not (instance.hop.any() or instance.node_ready.any() or instance.config_ready.any())
    )


class Bulk:
    """One pass over the units of ``instance``."""

    def __init__(self, instance: Instance) -> None:
        self._configs, self._nodes = instance.configs, instance.nodes
        self._seconds = memoryview(np.ascontiguousarray(instance.durations).data)
        self._remaining: list[float] = instance.durations.sum(axis=1).tolist()
        self._load: list[float] = instance.durations.sum(axis=0).tolist()
        self._left = [bytearray(b"\x01") * self._configs for _ in range(self._nodes)]
        self._place = [n * self._configs // self._nodes for n in range(self._nodes)]
        self._idle = bytearray(b"\x01") * self._configs
        long = LONG * lower_bound(instance)
        self._long = bytearray(rest > long for rest in self._remaining)
        self._urgent = sorted((rest, i) for i, rest in enumerate(self._remaining) if rest > long)
        self._order = array("I")
        self._events: list[tuple[float, int, int]] = []
        self._now = 0.0

    def play(self) -> tuple[NDArray[np.uint32], float]:
        """Serve every node whenever it is free. Returns the units, as numbers ``config * N + node``, in the
        order of their starts, and the makespan."""
        events, left = self._events, self._left
        waiting = [n for n in sorted(range(self._nodes), key=lambda n: -self._load[n]) if not self._serve(n)]
        while events:
            self._now, n, config = heappop(events)
            # The nodes that wait could take none of the idle configs, so this one is all that they can take.
            able = [m for m in waiting if left[m][config]] if waiting else ()
            if able:
                taker = max(able, key=self._load.__getitem__)
                waiting.remove(taker)
                self._start(taker, config)
            else:
                self._idle[config] = 1
                if self._long[config]:
                    insort(self._urgent, (self._remaining[config], config))
            if not self._serve(n) and 1 in left[n]:
                waiting.append(n)
        return np.frombuffer(self._order, dtype=np.uint32), self._now

    def _serve(self, node: int) -> bool:
        """Start the node's next unit. False: it can take none now."""
        left = self._left[node]
        for place in range(len(self._urgent) - 1, max(len(self._urgent) - LOOKS, 0) - 1, -1):
            config = self._urgent[place][1]
            if left[config]:
                self._start(node, config)
                return True
        first, idle = self._place[node], self._idle
        for begin, end in ((first, self._configs), (0, first)):
            config = left.find(1, begin, end)
            while config >= 0:
                if idle[config]:
                    self._start(node, config)
                    return True
                config = left.find(1, config + 1, end)
        return False

    def _start(self, node: int, config: int) -> None:
        length, rest = self._seconds[config, node], self._remaining[config]
        if self._idle[config] and self._long[config]:
            self._urgent.remove((rest, config))
        self._idle[config] = self._left[node][config] = 0
        self._remaining[config] = rest - length
        self._load[node] -= length
        self._order.append(config * self._nodes + node)
        heappush(self._events, (self._now + length, node, config))
