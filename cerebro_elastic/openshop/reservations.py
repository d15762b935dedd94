"""Nodes that are kept free for critical configs.

A config may have to go on at once when its unit ends, to be done by the horizon. A node is reserved for it
then: until that time the node takes only units that are over before."""

from __future__ import annotations

from collections.abc import Callable

from cerebro_elastic.openshop.state import DispatchState, ScheduledUnit


class Reservations:
    """The reservations of one dispatch: at most one for each node, and for each config."""

    def __init__(self, state: DispatchState) -> None:
        self._state = state
        self.nodes: dict[int, tuple[float, int]] = {}
        """By reserved node: from when on it is kept free, and for which config."""
        self._node_of: dict[int, int] = {}
        """By config: the node that is reserved for it."""
        for visit in state.running.values():
            self.update(visit)

    def update(self, visit: ScheduledUnit) -> None:
        """Reserve a node for the end of the visit, if its config must then go on at once."""
        state, nodes = self._state, self.nodes
        i, now = visit.config, state.time
        end = state.expected_end(visit)
        if (reserved := self._node_of.pop(i, None)) is not None:
            nodes.pop(reserved, None)
        remaining = state.remaining[i]
        if end + remaining < state.horizon - state.guard or not remaining:
            return
        running, bit, candidates = state.running, 1 << i, []
        for n, configs in enumerate(state.open_configs):
            if configs & bit and n not in nodes and n not in state.away:
                free = now
                if n == visit.node:
                    free = end
                elif n in running:
                    free = state.expected_end(running[n])
                candidates.append((max(free - end, 0.0), end - free, n))
        if candidates and (best := min(candidates))[0] <= state.guard:
            nodes[best[2]] = (end, i)
            self._node_of[i] = best[2]

    def fits(self, n: int) -> Callable[[int], bool]:
        """Whether a config's unit on the reserved node ``n`` is over when the node is wanted."""
        end, wanted = self.nodes[n]
        state = self._state
        seconds, owned, latest = state.tables.seconds, state.owned[n], end + max(state.guard, 0.0) * 0.5

        def fits(i: int) -> bool:
            mask = owned[i]
            return i == wanted or state.time + seconds[i][(mask & -mask).bit_length() - 1][n] <= latest

        return fits
