"""The dispatcher plays a state forward, event by event.

Whenever a node is free, it takes a unit that it may do of a config that is idle. A ``Rule`` chooses the
config; the rest is Algorithm 1 of the paper (section 5.3). A dispatcher never plans a start time: it
decides when a node is free, by the knowledge of that time. So the same code

- makes a plan, where units take the expected seconds;
- follows a run whose units take other seconds;
- tries rules out from any moment on, on a fork of the state.

Two additions serve critical configs. With replicas, a node that has done its own units takes over one of
another node (``steal``). Where the state has a ``guard``, nodes are kept free for configs that must continue
at once (``Reservations``)."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop
from math import inf

from cerebro_elastic.scheduling.openshop.rules import Rule
from cerebro_elastic.scheduling.openshop.state import DispatchState, ScheduledUnit, Seconds


class Dispatch:
    """One dispatch of ``state`` by ``rule``.

    Args:
        state: The remaining work; it is changed.
        rule: It is restarted.
        actual: The seconds that units really take, known when they have ended. Default: the expected ones.
        cutoff: The dispatch is given up once the state cannot be finished before (seconds).
        record: Called with each unit as it starts.
        arrived: Gets the configs that have nothing left to do; the dispatch pauses there.
    """

    def __init__(
        self,
        state: DispatchState,
        rule: Rule,
        *,
        actual: Seconds | None = None,
        cutoff: float = inf,
        record: Callable[[ScheduledUnit], None] | None = None,
        arrived: list[int] | None = None,
    ) -> None:
        self.decisions = 0
        """How many units were started."""
        self._state, self._rule = state, rule
        self._actual = actual or state.tables.seconds
        self._cutoff, self._record, self._arrived = cutoff, record, arrived
        self._steals = state.tables.replicated and not state.shared
        self._reservations = Reservations(state) if state.guard >= 0 and not state.shared else None

    def play(self, until: float = inf) -> float:
        """Dispatch up to and including the events at ``until``.

        Returns:
            The time of the last event. Infinity if the state cannot be finished before ``cutoff``; the state
            is of no further use then.
        """
        state, rule, cutoff = self._state, self._rule, self._cutoff
        events, fastest, load = state.events, state.fastest, state.load
        idle = state.waiting_configs()
        state.idle_configs = sum(1 << i for i in idle)
        rule.begin(state, idle)
        nodes = state.free_nodes()
        while True:
            rule.arrange(nodes)
            waiting = []
            for n in nodes:
                visit = self._serve(n)
                if visit is None:
                    waiting.append(n)
                elif visit.end + fastest[visit.config] >= cutoff or visit.end + load[n] >= cutoff:
                    return inf
            if not events or events[0][0] > until:
                state.time = max(state.time, until) if until < inf else state.time
                return state.time
            nodes = waiting
            self._advance(nodes)
            if self._arrived:
                return state.time

    def _serve(self, n: int) -> ScheduledUnit | None:
        """Node ``n`` begins a unit, if it has one now."""
        state, reservations = self._state, self._reservations
        fits = None
        if reservations is not None and n in reservations.nodes:
            fits = reservations.fits(n)
        i = self._rule.pick(n, fits) if state.open_configs[n] else None
        if i is not None:
            mask = state.owned[n][i]
            j = (mask & -mask).bit_length() - 1
        elif self._steals and fits is None and (unit := steal(state, n, self._rule)) is not None:
            i, j = unit
        else:
            return None
        visit = state.start(n, i, j, self._actual)
        self.decisions += 1
        if reservations is not None:
            reservations.update(visit)
        if self._record is not None:
            self._record(visit)
        return visit

    def _advance(self, nodes: list[int]) -> None:
        """Go to the time of the next event, and add the nodes that are free from then on to ``nodes``."""
        state, rule, events = self._state, self._rule, self._state.events
        now = state.time = events[0][0]
        while events and events[0][0] == now:
            _, n, i = heappop(events)
            if n >= 0:
                nodes.append(n)
                state.running.pop(n, None)
            if i >= 0:
                state.last_node[i] = n
                if state.undone[i] or state.begin_next_epoch(i):
                    state.idle_configs |= 1 << i
                    rule.add(i)
                elif self._arrived is not None and n >= 0:
                    self._arrived.append(i)


class Reservations:
    """The reservations of one dispatch: at most one for each node, and for each config.

    A config may have to continue at once when its unit ends, to be done by the horizon. Then a node is
    reserved for it: the node takes only units that end before that time.
    """

    def __init__(self, state: DispatchState) -> None:
        self._state = state
        self.nodes: dict[int, tuple[float, int]] = {}
        """By reserved node: the time from which it is kept free, and the config."""
        self._node_of: dict[int, int] = {}
        """By config: the node that is reserved for it."""
        for visit in state.running.values():
            self.update(visit)

    def update(self, visit: ScheduledUnit) -> None:
        """Reserve a node for the end of the visit, if its config must then continue at once."""
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


def steal(state: DispatchState, n: int, rule: Rule) -> tuple[int, int] | None:
    """Take over a unit for node ``n`` that it can do in time.

    The most loaded node gives first. Units on partitions that ``n`` holds come before units on partitions
    that it would fetch. The unit's config is idle no longer.

    Returns:
        The unit's config and partition; ``None`` if no node has a unit for ``n``.
    """
    owners = sorted(range(len(state.load)), key=lambda a: -(inf if a in state.away else state.load[a]))
    for partitions in (state.replicas[n], state.tables.fetchable & ~state.replicas[n]):
        for a in owners if partitions else ():
            if a != n and (unit := _unit_of(state, a, n, partitions)) is not None:
                rule.remove(unit[0])
                state.hand_over(*unit, n)
                return unit
    return None


def _unit_of(state: DispatchState, a: int, n: int, partitions: int) -> tuple[int, int] | None:
    """A unit of node ``a`` on one of ``partitions`` that node ``n`` could do in time, and sooner than
    ``a``."""
    seconds, least = state.tables.seconds, state.tables.least
    before = inf if a in state.away else state.load[a]
    partitions &= state.replicas[a] | state.tables.fetchable
    configs = state.open_configs[a] & state.idle_configs if partitions and before > state.load[n] else 0
    while configs:
        i = (configs & -configs).bit_length() - 1
        configs &= configs - 1
        mask = state.owned[a][i] & partitions
        while mask:
            j = (mask & -mask).bit_length() - 1
            mask &= mask - 1
            cost = seconds[i][j][n] + (0.0 if state.replicas[n] >> j & 1 else state.tables.fetch[j])
            end = state.time + cost + state.fastest[i] - least[i][j]
            if end <= state.horizon and state.load[n] + cost < before:
                return i, j
    return None
