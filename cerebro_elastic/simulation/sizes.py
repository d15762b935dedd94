"""What the record of a simulation says of units besides their seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Sizes:
    """A config's state has so many bytes at rest (``states``, ``usual`` for one that is not in it); a unit
    has so many ``batches`` and ``samples``."""

    states: Mapping[str, int] = field(default_factory=dict)
    usual: int = 0
    batches: int = 100
    samples: int = 100

    def state(self, config: str) -> int:
        return self.states.get(config, self.usual)
