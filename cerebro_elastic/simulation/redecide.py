"""A recorded history decided again: would the controller, shown what it was shown then, do the same?

It holds as long as the code that decides is the same. Where it does not, a controller that takes over would
go on otherwise than the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from cerebro_elastic.core.decisions.decide import decide
from cerebro_elastic.core.history.machine import fold
from cerebro_elastic.core.model.events import (
    ConfigCreated,
    ConfigEnded,
    ConfigResumed,
    Event,
    HomesAssigned,
    NodeQuarantined,
    RecordMended,
    RunEnded,
    UnitAssigned,
    UnitWithdrawn,
)
from cerebro_elastic.core.model.interfaces import Policy, Search
from cerebro_elastic.core.model.state import State
from cerebro_elastic.errors import IllegalEvent
from cerebro_elastic.simulation.effects import effect


@dataclass(frozen=True, slots=True)
class Redecision:
    """What came of it: so many of the controllers' events were ``found`` again, of ``all`` that there are;
    ``story`` tells of the first one that was not, for people."""

    matched: int
    total: int
    explanation: str | None = None


def divergence(events: Sequence[Event], policy: Policy, search: Search) -> str | None:
    """The first event of a controller's in ``events`` upon which it would not decide, told for people;
    ``None`` if there is none."""
    return redecide(events, policy, search).explanation


def redecide(
    events: Sequence[Event],
    policy: Policy,
    search: Search,
    enough: Callable[[], bool] = lambda: False,
) -> Redecision:
    """Decide a history again, from its beginning, until it is ``enough``, which is asked now and then.

    A controller decides on what its watch has shown, and the store may be ahead of that by events of others.
    One decision is several events, between which others' may lie, and the store refuses what these
    contradict. So each decision is looked for in all states since the last one; that which explains most is
    taken.
    """
    states = list(accumulate(events, fold, initial=State()))
    own = [index for index, event in enumerate(events) if _decided(event, states[index])]
    since, total = 0, len(own)
    while own and not enough():
        decisions = [
            _taken(events, states, own, states[at], policy, search) for at in range(since, own[0] + 1)
        ]
        most = max(decisions)
        if not most:
            proposed = [effect(action, 0) for action in decide(states[own[0]], policy, search)]
            story = (
                f"event {own[0]} of the history is {events[own[0]]}; now decided is {proposed or 'nothing'}"
            )
            return Redecision(total - len(own), total, story)
        since = own[most - 1] + 1
        own = own[most:]
    return Redecision(total - len(own), total)


def _taken(
    events: Sequence[Event],
    states: Sequence[State],
    own: Sequence[int],
    shown: State,
    policy: Policy,
    search: Search,
) -> int:
    """How many of the next events ``own`` a controller's are what it decides when ``shown`` this state."""
    taken = 0
    for action in decide(shown, policy, search):
        if taken == len(own):
            break
        index = own[taken]
        event = effect(action, events[index].revision)
        if _written(event) == _written(events[index]):
            taken += 1
        elif _possible(states[index], event) and not _overwritten(events[index:], event):
            break
    return taken


def _decided(event: Event, before: State) -> bool:
    """Whether the event is a controller's: not a person's, nor that of a node which gives its unit up."""
    match event:
        case ConfigCreated(config=config):
            return not config.by_hand
        case ConfigEnded(by_hand=by_hand) | ConfigResumed(by_hand=by_hand):
            return not by_hand
        case UnitWithdrawn(node=node, token=token):
            attempt = before.attempt(node, token)
            return attempt is None or not before.stands(attempt)
        case HomesAssigned() | UnitAssigned() | NodeQuarantined() | RunEnded():
            return True
        case _:
            return False


def _written(event: Event) -> Event:
    """The event as whoever writes it knows it: its revision is the store's to say."""
    match event:
        case UnitAssigned(attempt=attempt):
            return UnitAssigned(0, replace(attempt, token=0, record=None))
        case ConfigCreated(config=config):
            return ConfigCreated(0, replace(config, revision=0))
        case _:
            return replace(event, revision=0)


def _overwritten(later: Sequence[Event], event: Event) -> bool:
    """Whether a key that the event is about was put back later: until then the store refused it."""
    mended = next((each for each in later if isinstance(each, RecordMended)), None)
    if mended is None or not isinstance(event, UnitAssigned):
        return False
    attempt = event.attempt
    about = {f"configs/{attempt.unit.config}", *(f"{kind}/{n}" for n in attempt.nodes for kind in _OF_NODES)}
    return not about.isdisjoint(mended.keys)


_OF_NODES = ("assign", "nodes")


def _possible(state: State, event: Event) -> bool:
    """Whether the store would let it through."""
    try:
        fold(state, event)
    except IllegalEvent:
        return False
    return True
