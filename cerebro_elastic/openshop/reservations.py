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
        self._wanted: dict[int, tuple[float, int]] = {}
        """By node: from when on it is kept free, and for which config."""
        self._node: dict[int, int] = {}
        """By config: the node that is kept free for it."""
        for visit in state.running.values():
            self.update(visit)

    def update(self, visit: ScheduledUnit) -> None:
        """Reserve a node for the end of the visit, if its config must then go on at once."""
        state = self._state
        i, end = visit.config, state.expected_end(visit)
        if (reserved := self._node.pop(i, None)) is not None:
            self._wanted.pop(reserved, None)
        if end + state.remaining[i] < state.horizon - state.guard or not state.remaining[i]:
            return
        bit, candidates = 1 << i, []
        for n, configs in enumerate(state.open_configs):
            if configs & bit and n not in self._wanted and n not in state.away:
                free = end if n == visit.node else self._free(n)
                candidates.append((max(free - end, 0.0), end - free, n))
        if candidates and (best := min(candidates))[0] <= state.guard:
            self._wanted[best[2]] = (end, i)
            self._node[i] = best[2]

    def _free(self, n: int) -> float:
        """When the node is expected to be free."""
        running = self._state.running
        return self._state.expected_end(running[n]) if n in running else self._state.time

    def fits(self, n: int) -> Callable[[int], bool] | None:
        """Whether a config's unit on the reserved node ``n`` is over when the node is wanted. ``None`` if the
        node is not reserved."""
        if n not in self._wanted:
            return None
        end, wanted = self._wanted[n]
        state = self._state
        seconds, owned, latest = state.tables.seconds, state.owned[n], end + max(state.guard, 0.0) * 0.5

        def fits(i: int) -> bool:
            mask = owned[i]
            return i == wanted or state.time + seconds[i][(mask & -mask).bit_length() - 1][n] <= latest

        return fits
