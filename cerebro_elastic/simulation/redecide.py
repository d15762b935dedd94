"""A recorded history decided again: would the controller, shown what it was shown then, do the same?

It does as long as the code that decides is the same. Where it does not, a controller that takes over would
decide otherwise than the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from cerebro_elastic.core.decisions.decide import decide
from cerebro_elastic.core.history.keys import Keys, written_at
from cerebro_elastic.core.history.machine import TABLE, fold
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.events import (
    ConfigCreated,
    ConfigEnded,
    ConfigResumed,
    Event,
    HomesAssigned,
    LeaderChanged,
    NodeQuarantined,
    RunEnded,
    StayEnded,
    UnitAssigned,
    UnitsReused,
    UnitWithdrawn,
)
from cerebro_elastic.core.model.interfaces import Policy, Search
from cerebro_elastic.core.model.reuse import standing
from cerebro_elastic.core.model.state import State
from cerebro_elastic.errors import IllegalEvent

_SPARE = 200
"""How many other explanations of what came before are tried if nothing explains an event, before it is
reported."""
_STEPS: Mapping[type[Event], int] = {
    UnitWithdrawn: 0,
    NodeQuarantined: 2,
    StayEnded: 2,
    ConfigCreated: 3,
    ConfigEnded: 3,
    ConfigResumed: 3,
    UnitsReused: 3,
    HomesAssigned: 4,
    UnitAssigned: 5,
    RunEnded: 6,
}
"""The events of which decisions consist, with their places in one. Those before assignments repair the state;
no decision has them and assignments."""
_FAILED_STEP = 1
"""The place of the end of a config that has failed."""


@dataclass(frozen=True, slots=True)
class Redecision:
    """How many of the controllers' events were decided again."""

    matched: int
    """The events that were decided again, from the first one on."""
    total: int
    """All events of controllers in the history that can be decided again."""
    explanation: str | None = None
    """The first event that was not decided again, in words; ``None`` if all were."""


def redecide(
    events: Sequence[Event],
    policy: Policy,
    search: Search,
    enough: Callable[[], bool] = lambda: False,
    former: Sequence[Search] = (),
) -> Redecision:
    """Decide a history again, from its beginning.

    A controller decides on what its watch has shown, and the store may be ahead of that by events of nodes
    and people. One decision is several events, between which theirs may lie, and the store refuses what
    these contradict. So each decision is looked for in all states since the last one. Two states may explain
    the same event, and only one of them what follows: the state that explains most is tried first, the others
    when nothing explains the next event.

    A record that begins with a state that was read from the store does not have the states before it. The
    rest of a decision that was under way then cannot be made again, and does not count.

    Args:
        policy: The policy that decided then.
        search: The search that decided then.
        enough: Asked as events are decided again; the rest of the history is left out once it returns true.
        former: The searches that decided before each extension of the run, if these were others.
    """
    searches = [*former, search]
    states = list(accumulate(events, fold, initial=State()))
    # As far as they did: the history does not say what else could have been reused.
    reusable = {
        standing(states[index].configs[event.config]): event.visits
        for index, event in enumerate(events)
        if isinstance(event, UnitsReused)
    }

    def decided_in(state: State) -> list[Event]:
        number = state.extension.number if state.extension is not None else 0
        return decide(state, policy, searches[min(number, len(searches) - 1)], reusable)

    record = _Record(events, states, decided_in)
    total = len(record.decided)
    furthest, spare = _Place(), _SPARE
    tried: dict[int, int] = {}  # by place, the least ``ended``: a greater one leads no further
    ways = [iter([furthest])]
    while ways and spare:
        place = next(ways[-1], None)
        if place is None:
            ways.pop()
        elif place.ended < tried.get(place.done, len(events)):
            tried[place.done] = place.ended
            if place.done > furthest.done:
                furthest, spare = place, _SPARE
            elif place.done:
                spare -= 1
            if furthest.done == total or (place is furthest and enough()):
                return Redecision(furthest.done - furthest.skipped, total - furthest.skipped)
            ways.append(record.ways_on(place))
    first = record.decided[furthest.done]
    proposed = decided_in(record.states[first])
    explanation = f"event {first} of the history is {events[first]}; now decided is {proposed or 'nothing'}"
    return Redecision(furthest.done - furthest.skipped, total - furthest.skipped, explanation)


@dataclass(frozen=True, slots=True)
class _Place:
    """How far a record was decided again."""

    done: int = 0
    """The number of controllers' events up to here."""
    skipped: int = 0
    """Those among them that belong to a decision that was under way when the record begins."""
    ended: int = -1
    """The index of the event with which the last decision ended of which none is missing."""


class _Record:
    """A history, and the ways in which controllers may have come to it."""

    def __init__(
        self, events: Sequence[Event], states: Sequence[State], decided_in: Callable[[State], Sequence[Event]]
    ) -> None:
        self._events = events
        self._decided_in = decided_in
        self.states = states
        """The state before each event, and the last one."""
        self.decided = [index for index, event in enumerate(events) if _decided(event, self.states[index])]
        """The indices of the events of controllers."""
        self._explained: dict[int, list[tuple[int, bool]]] = {}

    def ways_on(self, place: _Place) -> Iterator[_Place]:
        """The places to which one decision may lead: those of the most events first."""
        done = place.done
        if done not in self._explained:
            first = self.decided[done - 1] + 1 if done else 0
            states = self.states[first : self.decided[done] + 1]
            explained = {self._explains(done, state) for state in states}
            self._explained[done] = sorted(explained, reverse=True)
        for count, whole in self._explained[done]:
            if count:
                ended = self.decided[done + count - 1] if whole else place.ended
                yield replace(place, done=done + count, ended=ended)
        for count in range(self._explained[done][0][0], 0, -1):  # its leader ended in the middle of it
            yield replace(place, done=done + count)
        if self._was_under_way(place):
            yield replace(place, done=done + 1, skipped=place.skipped + 1)

    def _explains(self, done: int, state: State) -> tuple[int, bool]:
        """How many of the decided events from number ``done`` on are those that a controller decides in
        ``state``, and whether none of these is missing."""
        at = done
        for event in self._decided_in(state):
            if at == len(self.decided):
                return at - done, False
            index = self.decided[at]
            event = replace(event, revision=self._events[index].revision)
            if _written(event) == _written(self._events[index]):
                at += 1
            elif _accepted(state, self.states[index], event):
                return at - done, False
        return at - done, True

    def _was_under_way(self, place: _Place) -> bool:
        """Whether the next event may belong to a decision that a leader had made before the record begins: a
        state was read, since then no decision has ended and no other controller has begun to lead, and the
        events since then may be of one decision. An assignment says itself what its leader had read."""
        events, index = self._events, self.decided[place.done]
        before = range(index - 1, place.ended, -1)
        read = next((n for n in before if events[n].afresh or isinstance(events[n], LeaderChanged)), None)
        if read is None or not events[read].afresh:
            return False
        steps = [_step(events[n]) for n in self.decided[: place.done + 1] if n > read]
        if steps != sorted(steps) or (steps[0] < _STEPS[UnitAssigned] <= steps[-1]):
            return False
        event = events[index]
        if not isinstance(event, UnitAssigned):
            return True
        head = event.attempt.record
        return head is not None and head.revision < events[read].revision


def _step(event: Event) -> int:
    failed = isinstance(event, ConfigEnded) and event.status is Status.FAILED
    return _FAILED_STEP if failed else _STEPS[type(event)]


def _decided(event: Event, before: State) -> bool:
    """Whether a controller made the event: not a person, nor a node that gives its unit up."""
    if isinstance(event, UnitWithdrawn):
        attempt = before.attempt(event.node, event.token)
        return attempt is None or not before.may_report(attempt)
    if isinstance(event, ConfigCreated | ConfigEnded | ConfigResumed) and event.by_hand:
        return isinstance(event, ConfigResumed) and bool(event.extension)
    return type(event) in _STEPS


def _written(event: Event) -> Event:
    """The event without what only the store knows, as its revision."""
    if isinstance(event, UnitAssigned):
        return replace(event, revision=0, attempt=replace(event.attempt, token=0, record=None))
    if isinstance(event, ConfigCreated):
        first, *others = (replace(config, revision=0) for config in event.configs)
        return replace(event, revision=0, config=first, others=tuple(others))
    return replace(event, revision=0)


def _accepted(decided_in: State, state: State, event: Event) -> bool:
    """Whether the store, as ``state`` says, would have accepted an event of which a controller thought in
    ``decided_in``: the event is possible, and what its row compares is as the controller had read it."""
    for kind in TABLE[type(event)].compares:
        for name in Keys("").concerned(kind, decided_in, event).values():
            if written_at(decided_in, kind, name) != written_at(state, kind, name):
                return False
    try:
        fold(state, event)
    except IllegalEvent:
        return False
    return True
