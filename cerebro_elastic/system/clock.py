"""What time is it? Live runs use ``SystemClock``, tests and the simulator a clock of their own."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A clock: it has monotonic and wall-clock seconds, and can wait."""

    def now(self) -> float:
        """Monotonic seconds; only differences mean anything."""

    def wall(self) -> float:
        """Seconds since the epoch, for people to read; never used in a decision."""

    def sleep(self, seconds: float) -> None:
        """Let ``seconds`` pass."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
