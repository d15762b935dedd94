"""Whether a search would have made the decisions in a recorded history."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from cerebro_elastic.core.decisions.observing import observe
from cerebro_elastic.core.history.machine import fold
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.events import ConfigCreated, ConfigEnded, ConfigResumed, Event
from cerebro_elastic.core.model.interfaces import Proposal, Resume, Search, SearchContext, Stop
from cerebro_elastic.core.model.state import State

_LOOKS = 12


def unexplained(events: Sequence[Event], search: Search) -> list[str]:
    """The decisions in a recorded history that ``search`` would not have made.

    Each recorded decision must be among the search's answers in one of the states just before it. (Other
    commits may lie between the state that the leader saw and its decision.)
    """
    state, contexts, strange = State(), deque[SearchContext](maxlen=_LOOKS), []
    for event in events:
        wanted = _decision(event)
        if wanted is not None and not any(wanted in _answers(search, look) for look in reversed(contexts)):
            strange.append(f"{event} was not what {type(search).__name__} would have done")
        state = fold(state, event)
        if state.plan is not None:
            contexts.append(observe(state, state.plan))
    return strange


def _decision(event: Event) -> object | None:
    """The search's decision that the event records, if it records one."""
    match event:
        case ConfigCreated(config=config) if not config.by_hand:
            return Proposal(
                config.hparams, (config.parent.config or None) if config.parent else None, config.origin
            )
        case ConfigEnded(config=name, status=Status.STOPPED, reason=reason, by_hand=False):
            return Stop(name, reason)
        case ConfigResumed(config=name, reason=reason, by_hand=False):
            return Resume(name, reason)
    return None


def _answers(search: Search, context: SearchContext) -> Sequence[object]:
    return search.decide(context) or search.propose(context)
