"""What a strategy costs for a config on this machine, measured outside of a run."""

from __future__ import annotations

from dataclasses import dataclass

from cerebro_elastic.core.model.units import Strategy


@dataclass(frozen=True, slots=True)
class StrategyCost:
    """The measured cost of training ``config`` by ``strategy``, or why the strategy is refused."""

    config: str
    strategy: Strategy
    batch_seconds: float = 0.0
    data_seconds: float = 0.0
    """The part of them in which training waited for the batch to be made."""
    peak_bytes: int = 0
    """The most bytes that one rank had in use."""
    hop_seconds: float | None = None
    """Seconds that a hop (one load and one save of the state) keeps the node from training. ``None`` if the
    task cannot be left in the middle of a unit."""
    save_seconds: float = 0.0
    """Seconds of the save that go on behind the node's next unit."""
    state_bytes: int | None = None
    """Bytes of the state at rest. ``None`` if the task cannot be left in the middle of a unit."""
    fixed_seconds: float = 0.0
    """Seconds of a unit besides its batches, to make the model, say."""
    refusal: str | None = None
    """Why the strategy cannot train the config; ``None`` if it can."""
    concurrent_units: int = 1
    """How many units this machine trained at the same time; seconds and bytes are their means."""
