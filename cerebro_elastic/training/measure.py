"""What a trial tells that belongs to no run."""

from __future__ import annotations

from dataclasses import dataclass

from cerebro_elastic.core.model.units import Strategy


@dataclass(frozen=True, slots=True)
class Measure:
    """What a trial told of a config by a choice: seconds of a ``batch``, of what a unit takes besides its
    batches (``fixed``: to make the model, say), and of a ``hop`` (one load and one save of the state) as far
    as it is the node's time, the rest of the save going on behind its next unit (``saving``); the most
    ``bytes`` that a rank had in use, and the ``state``'s bytes at rest; or why it is refused. ``hop`` and
    ``state`` are ``None`` if the task cannot be left in the middle of a unit. ``beside``: so many units were
    trained on this machine at the time, and these are their means."""

    config: str
    strategy: Strategy
    batch: float = 0.0
    bytes: int = 0
    hop: float | None = None
    saving: float = 0.0
    state: int | None = None
    fixed: float = 0.0
    refusal: str | None = None
    beside: int = 1
