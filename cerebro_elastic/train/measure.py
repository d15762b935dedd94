"""What a trial tells that belongs to no run."""

from __future__ import annotations

from dataclasses import dataclass

from cerebro_elastic.core.values import Choice


@dataclass(frozen=True, slots=True)
class Measure:
    """What a trial told of a config by a choice: seconds of a ``batch`` and of a ``hop`` (one save and one
    load of the state), the most ``bytes`` that a rank had in use, the ``state``'s bytes at rest; or why it is
    refused. ``hop`` and ``state`` are ``None`` if the task cannot be left in the middle of a unit."""

    config: str
    choice: Choice
    batch: float = 0.0
    bytes: int = 0
    hop: float | None = None
    state: int | None = None
    refusal: str | None = None
