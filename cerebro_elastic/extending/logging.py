"""A logger gets what configs log, visit by visit, in the order of each config. Imports no torch."""

from __future__ import annotations

from cerebro_elastic.reporting.logged import ConfigEnd, Logged, Logger

__all__ = [
    "ConfigEnd",
    "Logged",
    "Logger",
]
