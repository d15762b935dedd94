"""What is the row of an event, and what do the rows share? (``machine.TABLE`` has all of them.)"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TypeVar

from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.entries import with_entry
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.state import State
from cerebro_elastic.errors import IllegalEvent

V = TypeVar("V")


class Writer(StrEnum):
    """The writers of a run's record."""

    LEADER = "the leader"
    OPERATOR = "operators"
    WORKER = "workers"
    NODE = "nodes"


LEADER, OPERATOR, WORKER, NODE = Writer


@dataclass(frozen=True, slots=True)
class Row:
    """The description of an event. Keys are named by their kinds (``keys.KINDS``)."""

    after: Callable[[State, Any], State]
    """The state after the event. Raises ``IllegalEvent`` if the event is not possible."""
    by: tuple[Writer, ...] = ()
    """Its permitted writers; empty: it is no transaction."""
    keys: tuple[str, ...] = ()
    """The keys that it changes."""
    also: tuple[str, ...] = ()
    """Keys that it changes if they exist, or if a person requested it."""
    compares: tuple[str, ...] = ()
    """Keys that must be as its writer has read them, besides those that it changes or that fence its
    writer."""
    derives: Callable[[State, Any], State] | None = None
    """Further changes that readers compute from it, in the state after it; no key has them."""
    before_the_run: bool = False
    """It may happen before the run is opened."""


Rows = Mapping[type[Event], Row]


def require(holds: bool, event: Event, why: str | Callable[[], str]) -> None:
    """Raise ``IllegalEvent`` with the reason ``why``, unless the condition ``holds``. A long reason is a
    function: most events are possible, and do not need the text."""
    if not holds:
        reason = why if isinstance(why, str) else why()
        raise IllegalEvent(f"{event} is impossible: {reason}")


def changed(state: State, event: Event, **changes: Any) -> State:
    """``state`` after the event, with these changes."""
    return replace(state, revision=event.revision, **changes)


def with_config(state: State, event: Event, config: Config, **changes: Any) -> State:
    """``state`` after the event, which has brought its config to ``config``, with these changes."""
    now = replace(config, revision=event.revision)
    return changed(state, event, configs=with_entry(state.configs, config.id, now), **changes)


def without_attempts(state: State, *tokens: int) -> dict[str, Mapping[str, Attempt]]:
    """The fields of ``state`` without the attempts that have these ``tokens``. An attempt queued behind one
    of them is in training now."""
    training = {name: attempt for name, attempt in state.attempts.items() if attempt.token not in tokens}
    queued = {name: attempt for name, attempt in state.queued.items() if attempt.token not in tokens}
    saving = {name: attempt for name, attempt in state.saving.items() if attempt.token not in tokens}
    begun = {name: attempt for name, attempt in queued.items() if name not in training}
    return {"attempts": {**training, **begun}, "queued": without(queued, *begun), "saving": saving}


def without(mapping: Mapping[str, V], *keys: str) -> dict[str, V]:
    """A copy of ``mapping`` without the ``keys``."""
    return {k: v for k, v in mapping.items() if k not in keys}
