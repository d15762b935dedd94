"""A scheduling policy of live runs: one moment in, one choice out. Imports no torch."""

from __future__ import annotations

from cerebro_elastic.core.model.interfaces import Policy, RemainingWork, SchedulingContext
from cerebro_elastic.core.model.units import Strategy, Unit

__all__ = [
    "Policy",
    "RemainingWork",
    "SchedulingContext",
    "Strategy",
    "Unit",
]
