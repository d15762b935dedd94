"""A recorded history decided again: would the controller, given the same states, do the same?

It does as long as the deciding code is the same. Where it does not, a controller that takes over would decide
differently from its predecessor.
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
"""The number of other explanations of earlier events that are tried for an unexplained event, before it is
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
"""The events of decisions, with their places in one. Those before assignments repair the state; no decision
has both them and assignments."""
_FAILED_STEP = 1
"""The place of a failed config's end."""


@dataclass(frozen=True, slots=True)
class Redecision:
    """The number of the controllers' events that were decided again."""

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

    A controller decides on the state of its watch, and the store may be ahead of that by events of nodes and
    people. One decision is several events; events of others may lie between them, and the store refuses those
    that they contradict. So each decision is searched for in all states since the last one. Two states may
    explain the same event, but only one of them the following ones: the state that explains most is tried
    first, the others if nothing explains the next event.

    A record that begins with a state read from the store lacks the earlier states. The rest of a decision
    that was under way then cannot be repeated, and does not count.

    Args:
        policy: The run's policy.
        search: The run's search.
        enough: Called as events are decided again; once it returns true, the rest of the history is left out.
        former: The searches before each extension of the run, if different.
    """
    searches = [*former, search]
    states = list(accumulate(events, fold, initial=State()))
    # Only as far as they did: the history does not show what else could have been reused.
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
    """The point up to which a record was decided again."""

    done: int = 0
    """The number of controllers' events up to here."""
    skipped: int = 0
    """Those of them in a decision that was under way at the start of the record."""
    ended: int = -1
    """The index of the last event of the last complete decision."""


class _Record:
    """A history, and the decisions by which controllers may have made it."""

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
        """The places to which one decision may lead, most events first."""
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
        for count in range(self._explained[done][0][0], 0, -1):  # a leader may end in the middle of it
            yield replace(place, done=done + count)
        if self._was_under_way(place):
            yield replace(place, done=done + 1, skipped=place.skipped + 1)

    def _explains(self, done: int, state: State) -> tuple[int, bool]:
        """How many of the decided events from number ``done`` on are those of a controller's decision in
        ``state``, and whether that is complete."""
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
        """Whether the next event may belong to a decision made before the start of the record: a state was
        read, since then no decision has ended and no other controller has begun to lead, and the events since
        then may be of one decision. An assignment itself names its leader's state."""
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
    """Whether a controller made the event, not a person, nor a node that gives its unit up."""
    if isinstance(event, UnitWithdrawn):
        attempt = before.attempt(event.node, event.token)
        return attempt is None or not before.may_report(attempt)
    if isinstance(event, ConfigCreated | ConfigEnded | ConfigResumed) and event.by_hand:
        return isinstance(event, ConfigResumed) and bool(event.extension)
    return type(event) in _STEPS


def _written(event: Event) -> Event:
    """The event without the values that only the store has, such as its revision."""
    if isinstance(event, UnitAssigned):
        return replace(event, revision=0, attempt=replace(event.attempt, token=0, record=None))
    if isinstance(event, ConfigCreated):
        first, *others = (replace(config, revision=0) for config in event.configs)
        return replace(event, revision=0, config=first, others=tuple(others))
    return replace(event, revision=0)


def _accepted(decided_in: State, state: State, event: Event) -> bool:
    """Whether the store, in ``state``, would have accepted an event that a controller decided in
    ``decided_in``: the event is possible, and the compared keys of its row are as the controller had read
    them."""
    for kind in TABLE[type(event)].compares:
        for name in Keys("").concerned(kind, decided_in, event).values():
            if written_at(decided_in, kind, name) != written_at(state, kind, name):
                return False
    try:
        fold(state, event)
    except IllegalEvent:
        return False
    return True
