"""A recorded history decided again: would the controller, shown what it was shown then, do the same?

It does as long as the code that decides is the same. Where it does not, a controller that takes over would
go on in another way than the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from cerebro_elastic.core.decisions.decide import decide
from cerebro_elastic.core.history.machine import fold
from cerebro_elastic.core.model.actions import Action
from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.events import (
    ConfigCreated,
    ConfigEnded,
    ConfigResumed,
    Event,
    HomesAssigned,
    LeaderChanged,
    NodeQuarantined,
    RecordMended,
    RunEnded,
    StateRead,
    UnitAssigned,
    UnitWithdrawn,
)
from cerebro_elastic.core.model.interfaces import Policy, Search
from cerebro_elastic.core.model.state import State
from cerebro_elastic.errors import IllegalEvent
from cerebro_elastic.simulation.effects import effect


@dataclass(frozen=True, slots=True)
class Redecision:
    """How many of the controllers' events were decided again."""

    matched: int
    """The events that were decided again, from the first one on."""
    total: int
    """All events of controllers in the history that can be decided again."""
    explanation: str | None = None
    """The first event that was not decided again, in words; ``None`` if there is none."""


def divergence(events: Sequence[Event], policy: Policy, search: Search) -> str | None:
    """The first event of a controller in ``events`` that would not be decided again, in words; ``None`` if
    there is none."""
    return redecide(events, policy, search).explanation


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
    these contradict. So each decision is looked for in all states since the last one, and the state that
    explains most events is taken.

    A record that begins with a state that was read from the store does not have the states before it. The
    rest of a decision that was under way then cannot be made again, and does not count.

    Args:
        events: The history.
        policy: What decided then: which node takes which unit.
        search: What decided then: which configs there are.
        enough: Asked after each decision; the rest of the history is left out once it returns true.
        former: What decided before each extension of the run which configs there are, if that is another.
    """
    searches = [*former, search]

    def decided_in(state: State) -> list[Action]:
        number = state.extension.number if state.extension is not None else 0
        return decide(state, policy, searches[min(number, len(searches) - 1)])

    states = list(accumulate(events, fold, initial=State()))
    decided = [index for index, event in enumerate(events) if _decided(event, states[index])]
    since, total = 0, len(decided)
    ended = -1  # where the last decision ended of which all was found
    while decided and not enough():
        first = decided[0]
        explained, whole = max(
            _explained(events, states, decided, decided_in(states[at])) for at in range(since, first + 1)
        )
        if not explained and _was_under_way(events, first, ended):
            since, decided, total = first + 1, decided[1:], total - 1
            continue
        if not explained:
            proposed = [effect(action, 0) for action in decided_in(states[first])]
            explanation = (
                f"event {first} of the history is {events[first]}; now decided is {proposed or 'nothing'}"
            )
            return Redecision(total - len(decided), total, explanation)
        since = decided[explained - 1] + 1
        ended = since - 1 if whole else ended
        decided = decided[explained:]
    return Redecision(total - len(decided), total)


def _explained(
    events: Sequence[Event], states: Sequence[State], decided: Sequence[int], actions: Sequence[Action]
) -> tuple[int, bool]:
    """How many of the next ``decided`` events (indices) are the ``actions`` that a controller decides, and
    whether none of the actions is missing."""
    explained = 0
    for action in actions:
        if explained == len(decided):
            return explained, False
        index = decided[explained]
        event = effect(action, events[index].revision)
        if _written(event) == _written(events[index]):
            explained += 1
        elif _possible(states[index], event) and not _overwritten(events[index:], event):
            return explained, False
    return explained, True


def _was_under_way(events: Sequence[Event], index: int, ended: int) -> bool:
    """Whether the event may belong to a decision that a leader had made before the record begins: a state was
    read, and since then no decision has ``ended`` and no other controller has begun to lead. An assignment
    says itself what its leader had read."""
    marks = (at for at in range(index - 1, ended, -1) if isinstance(events[at], StateRead | LeaderChanged))
    read = next(marks, None)
    if read is None or not isinstance(events[read], StateRead):
        return False
    match events[index]:
        case UnitAssigned(attempt=Attempt(record=head)):
            return head is not None and head.revision < events[read].revision
        case _:
            return True


def _decided(event: Event, before: State) -> bool:
    """Whether a controller made the event: not a person, nor a node that gives its unit up."""
    match event:
        case ConfigCreated(config=config):
            return not config.by_hand
        case ConfigEnded(by_hand=by_hand):
            return not by_hand
        case ConfigResumed(by_hand=by_hand, extension=extension):
            return bool(extension) or not by_hand
        case UnitWithdrawn(node=node, token=token):
            attempt = before.attempt(node, token)
            return attempt is None or not before.stands(attempt)
        case HomesAssigned() | UnitAssigned() | NodeQuarantined() | RunEnded():
            return True
        case _:
            return False


def _written(event: Event) -> Event:
    """The event without what only the store knows, as its revision."""
    match event:
        case UnitAssigned(attempt=attempt):
            return UnitAssigned(0, replace(attempt, token=0, record=None))
        case ConfigCreated(config=config):
            return ConfigCreated(0, replace(config, revision=0))
        case _:
            return replace(event, revision=0)


def _overwritten(later: Sequence[Event], event: Event) -> bool:
    """Whether a key of the event was put back later: until then the store refused the event."""
    mended = next((candidate for candidate in later if isinstance(candidate, RecordMended)), None)
    if mended is None or not isinstance(event, UnitAssigned):
        return False
    attempt = event.attempt
    of_nodes = (key for n in attempt.nodes for key in (f"assign/{n}", f"assign/{n}/second", f"nodes/{n}"))
    return not {f"configs/{attempt.unit.config}", *of_nodes}.isdisjoint(mended.keys)


def _possible(state: State, event: Event) -> bool:
    """Whether the store would have accepted the event."""
    try:
        fold(state, event)
    except IllegalEvent:
        return False
    return True
