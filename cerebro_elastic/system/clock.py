"""Clocks. Live runs use ``SystemClock``, tests and the simulator their own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """A clock: it has monotonic and wall-clock seconds, and can wait."""

    def now(self) -> float:
        """Monotonic seconds; only differences mean anything."""

    def wall(self) -> float:
        """Seconds since the epoch, for people to read. No decision compares those of two machines, unless
        both go by etcd's clock."""

    def sleep(self, seconds: float) -> None:
        """Let ``seconds`` pass."""


class SystemClock:
    """The machine's own clock. Its wall-clock seconds are corrected by ``ahead``: the seconds by which it is
    ahead of the clock that all share."""

    def __init__(self, ahead: Callable[[], float] = lambda: 0.0) -> None:
        self._ahead = ahead

    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time() - self._ahead()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
