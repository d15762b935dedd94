"""Time in the hands of a test."""

from __future__ import annotations


class HandClock:
    """A ``Clock`` that the test advances. Its wall time may jump."""

    def __init__(self, start: float = 100.0) -> None:
        self.time = start
        self.jumped = 0.0

    def now(self) -> float:
        return self.time

    def wall(self) -> float:
        return self.time + self.jumped

    def sleep(self, seconds: float) -> None:
        self.time += seconds
