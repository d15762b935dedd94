"""What the rows of all events share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.state import State
from cerebro_elastic.errors import IllegalEvent

V = TypeVar("V")


def require(holds: bool, event: Event, why: str) -> None:
    """Raise ``IllegalEvent`` with the reason ``why``, unless the condition ``holds``."""
    if not holds:
        raise IllegalEvent(f"{event} is impossible: {why}")


def without_attempts(state: State, *tokens: int) -> State:
    """``state`` without the attempts that have these ``tokens``. What was queued behind one of them is in
    training now."""
    training = {name: attempt for name, attempt in state.attempts.items() if attempt.token not in tokens}
    queued = {name: attempt for name, attempt in state.queued.items() if attempt.token not in tokens}
    saving = {name: attempt for name, attempt in state.saving.items() if attempt.token not in tokens}
    begun = {name: attempt for name, attempt in queued.items() if name not in training}
    return replace(state, attempts={**training, **begun}, queued=without(queued, *begun), saving=saving)


def without(mapping: Mapping[str, V], *keys: str) -> dict[str, V]:
    """A copy of ``mapping`` without the ``keys``."""
    return {k: v for k, v in mapping.items() if k not in keys}
