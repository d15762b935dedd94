"""What a run tells people while it goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.state import State


@dataclass(frozen=True, slots=True)
class Watcher:
    """What a run tells while it goes on: steps on the way, and the state about twice a second and after
    each event."""

    say: Callable[[str], None] = lambda _text: None
    show: Callable[[list[Event], State], None] = lambda _events, _state: None
