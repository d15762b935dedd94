"""Waiting for a condition, never for a while."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
SOON = 240.0
"""Seconds. What takes longer fails its test: many times what anything takes on a machine that is busy."""


def wait_for(condition: Callable[[], T], what: str = "a condition") -> T:
    """The condition's value, soon after it is true.

    Looks become rarer: each takes time from what is waited for, and many read the whole run.
    """
    pause, deadline = 0.01, time.monotonic() + SOON
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {SOON:g} s for {what}"
        time.sleep(pause)
        pause = min(1.5 * pause, 0.1)
    return found
