"""Where new configs lie in the space: the interface of samplers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from cerebro_elastic.core.model.interfaces import Standing
from cerebro_elastic.core.model.values import HParams


@dataclass(frozen=True, slots=True)
class Sample:
    """A point, and what the sampler wants to find again in its config's origin (JSON values)."""

    hparams: HParams
    notes: Mapping[str, Any] = field(default_factory=dict)


class Sampler(Protocol):
    """Names the points of a space, one at a time. Pure: what comes next depends on what it is shown alone."""

    def sample(self, known: Sequence[Standing]) -> Sample | None:
        """The point after ``known``, the search's configs in the order in which they were proposed: none of
        theirs. ``None`` if there is no further one."""
