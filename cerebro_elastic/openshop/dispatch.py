"""The dispatcher plays a state forward, event by event.

Whenever a node is free, it takes a unit that it may do of a config that is idle. A ``Rule`` chooses the
config; the rest is Algorithm 1 of the paper (section 5.3). A dispatcher never plans a start time: it
decides when a node is free, by what is known then. So the same code

- makes a plan, where units take the seconds that are expected;
- follows a run whose units take other seconds;
- tries rules out from any moment on, on a fork of the state.

Two additions serve critical configs. With replicas, a node with nothing left of its own takes over a unit of
another node (``stealing``). Where the state has a ``guard``, nodes are kept free for configs that must go
on at once (``reservations``)."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop
from math import inf

from cerebro_elastic.openshop.reservations import Reservations
from cerebro_elastic.openshop.rules import Rule
from cerebro_elastic.openshop.state import DispatchState, ScheduledUnit, Seconds
from cerebro_elastic.openshop.stealing import steal


class Dispatch:
    """One dispatch of ``state`` by ``rule``.

    Args:
        state: What is left; it is changed.
        rule: It is begun anew.
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
        """Dispatch up to and including what happens at ``until``.

        Returns:
            The time of the last event. Infinity if the state cannot be finished before ``cutoff``; the state
            is of no further use then.
        """
        state, rule, arrived = self._state, self._rule, self._arrived
        idle = state.waiting_configs()
        state.idle_configs = sum(1 << i for i in idle)
        rule.begin(state, idle)
        nodes = state.free_nodes()
        while True:
            rule.arrange(nodes)
            waiting = self._serve(nodes)
            if waiting is None:
                return inf
            if not state.events or state.events[0][0] > until:
                state.time = max(state.time, until) if until < inf else state.time
                return state.time
            nodes = waiting + self._advance()
            if arrived:
                return state.time

    def _serve(self, nodes: list[int]) -> list[int] | None:
        """Each node takes a unit; those that find none are returned. ``None``: it will take too long."""
        state, actual, cutoff, record = self._state, self._actual, self._cutoff, self._record
        reservations = self._reservations
        waiting = []
        for n in nodes:
            unit = self._choice(n)
            if unit is None:
                waiting.append(n)
                continue
            visit = state.start(n, *unit, actual)
            self.decisions += 1
            if visit.end + state.fastest[visit.config] >= cutoff or visit.end + state.load[n] >= cutoff:
                return None
            if reservations is not None:
                reservations.update(visit)
            if record is not None:
                record(visit)
        return waiting

    def _choice(self, n: int) -> tuple[int, int] | None:
        """The config and the partition that node ``n`` takes."""
        state, reservations = self._state, self._reservations
        fits = None if reservations is None else reservations.fits(n)
        if state.open_configs[n]:
            i = self._rule.pick(n, fits)
            if i is not None:
                mask = state.owned[n][i]
                return i, (mask & -mask).bit_length() - 1
        if self._steals and fits is None:
            return steal(state, n, self._rule)
        return None

    def _advance(self) -> list[int]:
        """Go to the next event, and return the nodes that are free from then on."""
        state, rule, events = self._state, self._rule, self._state.events
        nodes = []
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
        return nodes
